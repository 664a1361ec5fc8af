"""Sessions: ids, their ends, the bound; the signed cookie."""

from __future__ import annotations

import itertools

import pytest

from console.access.account import OPERATOR
from console.access.sessions import (
    ABSOLUTE_MS,
    IDLE_MS,
    MAX_SESSIONS,
    Session,
    SessionCookie,
    SessionStore,
)


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.ms = 5_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> SessionStore:
    return SessionStore(clock)


def test_ids_and_tokens_are_long_and_never_the_same(store: SessionStore) -> None:
    sessions = [store.sign_in(OPERATOR, "10.0.0.1") for _ in range(50)]
    texts = {text for one in sessions for text in (one.id, one.csrf_token)}
    assert len(texts) == 100
    assert min(map(len, texts)) >= 43  # 256 bits


def test_a_session_says_neither_id_nor_token(store: SessionStore) -> None:
    session = store.sign_in(OPERATOR, "10.0.0.1")
    assert session.id not in repr(session)
    assert session.csrf_token not in repr(session)


def test_an_unused_session_ends(store: SessionStore, clock: Clock) -> None:
    session = store.sign_in(OPERATOR, "10.0.0.1")
    for _ in range(3):
        clock.ms += IDLE_MS - 1
        assert store.find(session.id) is session
    clock.ms += IDLE_MS
    assert store.find(session.id) is None
    assert len(store) == 0


def test_a_look_without_use_does_not_prolong(store: SessionStore, clock: Clock) -> None:
    session = store.sign_in(OPERATOR, "10.0.0.1")
    clock.ms += IDLE_MS - 1
    assert store.find(session.id, use=False) is session
    clock.ms += 1
    assert store.find(session.id, use=False) is None


def test_a_used_session_ends_after_its_whole_time(store: SessionStore, clock: Clock) -> None:
    session = store.sign_in(OPERATOR, "10.0.0.1")
    for _ in range(11):
        clock.ms += ABSOLUTE_MS // 12
        assert store.find(session.id) is session
    clock.ms += ABSOLUTE_MS // 12
    assert store.find(session.id) is None
    assert len(store) == 0


def test_idle_ones_end_although_a_used_one_is_older(store: SessionStore, clock: Clock) -> None:
    used = store.sign_in(OPERATOR, "10.0.0.1")
    for _ in range(5):
        store.sign_in(OPERATOR, "10.0.0.2")
    clock.ms += IDLE_MS - 1
    store.find(used.id)
    clock.ms += 1
    assert store.find(used.id) is used
    assert len(store) == 1


def test_signing_out_ends_it_and_only_it(store: SessionStore) -> None:
    one, other = store.sign_in(OPERATOR, "10.0.0.1"), store.sign_in(OPERATOR, "10.0.0.1")
    store.sign_out(one)
    assert store.find(one.id) is None
    assert store.find(other.id) is other


def test_signing_in_again_ends_the_browsers_former_one(store: SessionStore) -> None:
    before = store.sign_in(OPERATOR, "10.0.0.1")
    after = store.sign_in(OPERATOR, "10.0.0.1", before)
    assert after.id != before.id
    assert store.find(before.id) is None


def test_the_least_used_makes_room(store: SessionStore) -> None:
    sessions = [store.sign_in(OPERATOR, "10.0.0.1") for _ in range(MAX_SESSIONS)]
    assert store.find(sessions[0].id) is not None
    store.sign_in(OPERATOR, "10.0.0.1")
    assert len(store) == MAX_SESSIONS
    assert store.find(sessions[0].id) is not None
    assert store.find(sessions[1].id) is None


@pytest.fixture
def session() -> Session:
    return Session(OPERATOR, "10.0.0.1", 0)


def test_a_cookie_brings_its_id(session: Session) -> None:
    cookie = SessionCookie(8088)
    for is_tls in (False, True):
        brought = {cookie.name(is_tls=is_tls): cookie.text(session)}
        assert cookie.find_id(brought, is_tls=is_tls) == session.id
        assert cookie.find_id(brought, is_tls=not is_tls) is None
    assert cookie.name(is_tls=True) == "__Host-mqconsole-8088"
    assert cookie.name(is_tls=False) != SessionCookie(8089).name(is_tls=False)


def test_what_this_console_did_not_sign_is_nothing(session: Session) -> None:
    cookie = SessionCookie(8088)
    name = cookie.name(is_tls=False)
    good = cookie.text(session)
    foreign = SessionCookie(8088).text(session)
    bare = session.id
    swapped = f"{Session(OPERATOR, '', 0).id}.{good.rpartition('.')[2]}"
    odd = [foreign, bare, swapped, "", ".", "a.b", f"{good}x", f"x{good}", "é" * 50, "." * 100]
    longer = good + "\0" * 200
    for text in (*odd, longer, good.swapcase()):
        assert cookie.find_id({name: text}, is_tls=False) is None, text
    assert cookie.find_id({}, is_tls=False) is None


def test_no_character_of_a_cookie_may_change(session: Session) -> None:
    cookie = SessionCookie(8088)
    good = cookie.text(session)
    # The last character of the signature has two bits that stand for nothing.
    for i, char in itertools.product(range(len(good) - 1), "Aa-"):
        changed = good[:i] + char + good[i + 1 :]
        if changed != good:
            assert cookie.find_id({cookie.name(is_tls=False): changed}, is_tls=False) is None
