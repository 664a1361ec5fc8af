"""Lanes: the rate, single flight, ages, priorities, errors; on a clock of the test."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from console import kept_answers
from console import lanes as lanes_module
from console.cluster_watch import monotonic_ms
from console.kept_answers import Answer
from console.laned_client import LanedClient, Reading
from console.lanes import BUCKET, BUSY, MAX_PATIENT, MAX_QUEUED, WAITING, Lanes, Question
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.support.deadline import wait_until
from tools.admin_client import AdminClient, NameServers
from tools.errors import AdminError, BrokerAnswerError

PEER = "192.0.2.1:10911"


class Peer:
    """Counts what it is asked; `gate` holds its answers back."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Semaphore(0)
        self.error: Exception | None = None

    def question(self, name: str) -> Question[str]:
        def run(_client: AdminClient, address: str) -> str:
            self.asked.append((address, name))
            self.entered.release()
            assert self.gate.wait(20)
            if self.error is not None:
                raise self.error
            return f"answer {len(self.asked)}"

        return Question(name, run)


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def __call__(self) -> int:
        return self.ms


@contextmanager
def running(clock: Any, workers: int = 3) -> Iterator[Lanes]:
    client = Answering()
    lanes = Lanes(lambda _account: client, clock, workers)
    lanes.start()
    try:
        yield lanes
    finally:
        lanes.stop()


def test_an_answer_is_kept_for_as_long_as_its_reader_allows() -> None:
    peer, clock = Peer(), Clock()
    with running(clock) as lanes:
        first = lanes.ask(PEER, peer.question("a"), 1_000)
        assert (first.value, first.error) == ("answer 1", None)
        clock.ms += 1_000
        assert lanes.ask(PEER, peer.question("a"), 1_000) == first
        clock.ms += 1
        assert lanes.ask(PEER, peer.question("a"), 1_000).value == "answer 2"


def test_readers_of_two_accounts_do_not_share_an_answer() -> None:
    peer = Peer()
    with running(Clock()) as lanes:
        for account in (None, "alice", "bob", "alice"):
            lanes.ask(PEER, peer.question("a"), 60_000, account)
    assert len(peer.asked) == 3


def test_twenty_readers_are_one_request() -> None:
    peer = Peer()
    peer.gate.clear()
    with running(Clock()) as lanes, ThreadPoolExecutor(20) as pool:
        asked = [
            pool.submit(lanes.ask, PEER, peer.question("a"), 0, None, 20_000) for _ in range(20)
        ]
        assert peer.entered.acquire(timeout=20)
        while sum(future.running() for future in asked) < 20:
            pass
        peer.gate.set()
        answers = {future.result(20) for future in asked}
    assert len(peer.asked) <= 2  # one that came after the answer may ask again
    assert len(answers) <= 2


def test_more_than_the_bucket_waits_for_the_clock() -> None:
    peer, clock = Peer(), Clock()
    with running(clock) as lanes:
        for i in range(int(BUCKET)):
            assert lanes.ask(PEER, peer.question(f"q{i}"), 0).error is None
        late = lanes.ask(PEER, peer.question("late"), 0, None, 50)
        assert (late.value, late.error) == (None, WAITING)
        assert lanes.ask("192.0.2.2:10911", peer.question("other"), 0).error is None
        clock.ms += 1_000
        assert lanes.ask(PEER, peer.question("late"), 0).value is not None
    assert len(peer.asked) == int(BUCKET) + 2


def test_pages_go_before_the_poller_which_leaves_them_some_of_the_bucket() -> None:
    peer, clock = Peer(), Clock()
    with running(clock) as lanes:
        polls = [lanes.poll(PEER, peer.question(f"poll{i}")) for i in range(6)]
        for future in polls[:3]:
            future.result(20)
        assert lanes.ask(PEER, peer.question("page"), 0).error is None
        assert lanes.ask(PEER, peer.question("page 2"), 0).error is None
        assert [name for _, name in peer.asked] == ["poll0", "poll1", "poll2", "page", "page 2"]
        assert not polls[3].done()


def test_what_was_known_stays_beside_the_error() -> None:
    peer, clock = Peer(), Clock()
    with running(clock) as lanes:
        known = lanes.ask(PEER, peer.question("a"), 0)
        peer.error = AdminError("no right")
        clock.ms += 3_000
        answer = lanes.ask(PEER, peer.question("a"), 0)
    assert answer == Answer("answer 1", known.at_ms, "no right", clock.ms)
    assert answer.age_ms(clock.ms) == 3_000


def test_what_was_known_is_shown_while_the_newer_answer_is_awaited() -> None:
    peer, clock = Peer(), Clock()
    with running(clock) as lanes:
        known = lanes.ask(PEER, peer.question("a"), 0)
        peer.gate.clear()
        clock.ms += 1_000
        late = lanes.ask(PEER, peer.question("a"), 0, None, 20)
        peer.gate.set()
    assert (late.value, late.at_ms, late.error) == ("answer 1", known.at_ms, WAITING)


@pytest.mark.parametrize(
    ("error", "is_refusal"),
    [(BrokerAnswerError(PEER, 16, "no"), True), (AdminError("unreadable"), False)],
)
def test_a_peers_refusal_is_told_from_its_silence(error: Exception, is_refusal: bool) -> None:
    peer = Peer()
    peer.error = error
    with running(Clock()) as lanes:
        assert lanes.ask(PEER, peer.question("a"), 0).is_refusal is is_refusal


@pytest.mark.parametrize(("max_age_ms", "again_ms"), [(1_000, 1_000), (60_000, 2_000)])
def test_a_failure_is_asked_again_soon_but_not_at_once(max_age_ms: int, again_ms: int) -> None:
    peer, clock = Peer(), Clock()
    peer.error = AdminError("no right")
    with running(clock) as lanes:
        for later_ms, asked in ((0, 1), (again_ms, 1), (1, 2)):
            clock.ms += later_ms
            assert lanes.ask(PEER, peer.question("a"), max_age_ms).error == "no right"
            assert len(peer.asked) == asked


def test_an_odd_answer_is_a_sentence_and_the_worker_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peer = Peer()
    with running(Clock(), workers=1) as lanes:
        peer.error = RecursionError("deep")
        assert "cannot be read" in (lanes.ask(PEER, peer.question("a"), 0).error or "")
        peer.error = None
        assert lanes.ask(PEER, peer.question("b"), 0).error is None
    assert "deep" in caplog.text


def test_one_account_too_many_is_a_sentence() -> None:
    """Fifty have clients: the next one's question is not asked, and the worker goes on."""

    def client_of(account: Any) -> AdminClient:
        if account is not None:
            raise AdminError("50 accounts use this console now")
        return Answering()

    lanes, peer = Lanes(client_of, Clock(), 1), Peer()
    lanes.start()
    assert lanes.ask(PEER, peer.question("a"), 0, "alice").error == (
        "50 accounts use this console now"
    )
    assert lanes.ask(PEER, peer.question("a"), 0).value == "answer 1"
    lanes.stop()


def test_a_slow_broker_holds_one_worker_only() -> None:
    peer, quick = Peer(), Peer()
    peer.gate.clear()
    with running(Clock(), workers=2) as lanes:
        for i in range(3):
            lanes.poll(PEER, peer.question(f"slow{i}"))
        assert peer.entered.acquire(timeout=20)
        assert lanes.ask("192.0.2.2:10911", quick.question("a"), 0).error is None
        assert len(peer.asked) == 1
        peer.gate.set()


def test_the_end_answers_what_waits() -> None:
    peer = Peer()
    peer.gate.clear()
    with running(monotonic_ms, workers=1) as lanes:
        future = lanes.poll(PEER, peer.question("a"))
        assert peer.entered.acquire(timeout=20)
        waiting = lanes.poll(PEER, peer.question("b"))
        lanes.stop()
        assert "being stopped" in (waiting.result(20).error or "")
        peer.gate.set()
        assert future.result(20).error is not None


class Answering(AdminClient):
    """Answers with what the test gives; counts."""

    def __init__(self) -> None:
        self.name_servers = NameServers(("ns:1",))
        self.now_ms = lambda: 0
        self.asked: list[tuple[str, int, dict[str, str]]] = []
        self.error: Exception | None = None
        self.size = 0

    def call(self, address: str, code: Any, *rest: Any, **options: Any) -> RemotingCommand:
        self.asked.append((address, int(code), dict(options.get("extra") or {})))
        if self.error is not None:
            raise self.error
        return RemotingCommand.request(code, {}, b"answer %d" % len(self.asked) + bytes(self.size))


@contextmanager
def laned(clock: Clock) -> Iterator[tuple[Answering, Lanes]]:
    client = Answering()
    lanes = Lanes(lambda _account: client, clock, 3)
    lanes.start()
    try:
        yield client, lanes
    finally:
        lanes.stop()


def test_functions_of_tools_ask_through_the_lanes() -> None:
    clock = Clock()
    with laned(clock) as (client, lanes):
        reading = LanedClient(client, lanes, Reading(None, 1_000))
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        first = reading.call(PEER, code, extra={"a": "1"}).body
        assert reading.call(PEER, code, extra={"a": "1"}).body == first
        assert reading.call(PEER, code, extra={"a": "2"}).body != first
        assert LanedClient(client, lanes, Reading("bob", 1_000)).call(
            PEER, code, extra={"a": "1"}
        ).body not in (first,)
        assert [extra["a"] for _, _, extra in client.asked] == ["1", "2", "1"]
        clock.ms += 1_001
        assert reading.call(PEER, code, extra={"a": "1"}).body == b"answer 4"


def test_a_refusal_keeps_its_kind() -> None:
    with laned(Clock()) as (client, lanes):
        client.error = BrokerAnswerError(PEER, 206, "nobody is online")
        reading = LanedClient(client, lanes, Reading(None, 1_000))
        for _ in range(2):
            with pytest.raises(BrokerAnswerError) as caught:
                reading.call(PEER, RequestCode.GET_CONSUMER_CONNECTION_LIST)
            assert caught.value.code == 206
        assert len(client.asked) == 1


def test_what_is_asked_later_is_an_error_until_then() -> None:
    clock = Clock()
    with laned(clock) as (client, lanes):
        lanes.ask(PEER, Question("x", lambda _client, _at: None), 0)
        reading = LanedClient(client, lanes, Reading(None, 60_000, is_later=True))
        code = RequestCode.GET_BROKER_RUNTIME_INFO

        with pytest.raises(AdminError, match=WAITING):
            reading.call(PEER, code)

        def is_answered() -> bool:
            with suppress(AdminError):
                return bool(reading.call(PEER, code).body)
            return False

        wait_until(is_answered)
        assert len(client.asked) == 1


def test_pages_do_not_blind_the_poller() -> None:
    """A reader who asks something new each second takes all of the bucket but one in four."""
    peer, clock = Peer(), Clock()
    with running(clock, workers=1) as lanes, ThreadPoolExecutor(8) as pool:
        polled = lanes.poll(PEER, peer.question("first"))
        polled.result(20)
        for n in range(int(BUCKET) - 1):
            assert lanes.ask(PEER, peer.question(f"before{n}"), 0).error is None
        polled = lanes.poll(PEER, peer.question("poll"))
        asked = [
            pool.submit(lanes.ask, PEER, peer.question(f"page{n}"), 0, None, 20_000)
            for n in range(6)
        ]
        wait_until(lambda: len(lanes._lanes[PEER].pages) == 6)
        while not polled.done():
            before = len(peer.asked)
            clock.ms += 1_000
            lanes.poll("192.0.2.9:1", peer.question(f"wakes {clock.ms}"))
            wait_until(lambda before=before: len(peer.asked) > before)
            assert clock.ms < 1_004_000
        lanes.stop()
        assert [future.result(20) for future in asked]


def test_a_long_list_does_not_blind_the_poller() -> None:
    """What pages want later goes in turn with what the poller asks."""
    peer, clock = Peer(), Clock()
    peer.gate.clear()
    with running(clock, workers=1) as lanes:
        first = lanes.poll(PEER, peer.question("first"))
        assert peer.entered.acquire(timeout=20)
        for n in range(3):
            lanes.ask(PEER, peer.question(f"later{n}"), 0, is_later=True)
        polls = [lanes.poll(PEER, peer.question(f"poll{n}")) for n in range(2)]
        peer.gate.set()
        for future in (first, *polls):
            while not future.done():
                clock.ms += 1_000
                lanes.poll("192.0.2.9:1", peer.question(f"wakes {clock.ms}"))
                wait([future], 0.02)
        of_lane = [name for address, name in peer.asked if address == PEER]
        assert of_lane[:4] == ["first", "later0", "poll0", "later1"]
        assert "later2" not in of_lane[: of_lane.index("poll1")]


def test_what_a_change_made_old_is_forgotten() -> None:
    peer, clock = Peer(), Clock()
    with running(clock) as lanes:
        for _ in range(2):
            lanes.ask(PEER, peer.question("groups"), 60_000)
            lanes.ask(PEER, peer.question("other"), 60_000)
        lanes.forget(peer.question("groups"))
        lanes.ask(PEER, peer.question("groups"), 60_000)
        lanes.ask(PEER, peer.question("other"), 60_000)
        assert Counter(name for _, name in peer.asked) == {"groups": 2, "other": 1}


def test_silent_brokers_leave_workers_to_pages() -> None:
    silent, quick = Peer(), Peer()
    silent.gate.clear()
    with running(monotonic_ms, workers=4) as lanes:
        polls = [lanes.poll(f"192.0.2.1:{n}", silent.question("poll")) for n in range(1, 8)]
        for _ in range(3):
            assert silent.entered.acquire(timeout=20)
        assert lanes.ask("192.0.2.2:10911", quick.question("page"), 0).error is None
        assert len(silent.asked) == 3
        silent.gate.set()
        assert [poll.result(20).error for poll in polls] == [None] * 7


def test_what_waits_in_a_lane_is_bounded() -> None:
    peer, clock = Peer(), Clock()
    with running(clock) as lanes:
        for n in range(int(BUCKET) + MAX_QUEUED):
            answer = lanes.ask(PEER, peer.question(f"q{n}"), 0, None, 1)
            assert answer.error in (None, WAITING)
        assert lanes.ask(PEER, peer.question("one more"), 0, None, 20_000).error == BUSY
        assert lanes.ask(PEER, peer.question(f"q{n}"), 0, None, 1).error == WAITING
        assert lanes.ask("192.0.2.2:10911", peer.question("other"), 0).error is None


def test_what_is_asked_later_is_bounded_too() -> None:
    peer, clock = Peer(), Clock()
    with running(clock) as lanes:
        said = {
            lanes.ask(PEER, peer.question(f"q{n}"), 0, is_later=True).error
            for n in range(2 * MAX_QUEUED)
        }
        assert said == {WAITING, BUSY}
        assert len(lanes._lanes[PEER].polls) <= MAX_QUEUED


def test_askers_that_wait_leave_threads_to_others() -> None:
    peer = Peer()
    peer.gate.clear()
    with running(monotonic_ms, workers=1) as lanes, ThreadPoolExecutor(MAX_PATIENT) as pool:
        waiting = [
            pool.submit(lanes.ask, f"192.0.2.1:{n}", peer.question("a"), 0, None, 20_000)
            for n in range(MAX_PATIENT)
        ]
        wait_until(lambda: lanes._patient == MAX_PATIENT)
        assert lanes.ask(PEER, peer.question("late"), 0, None, 20_000).error == BUSY
        peer.gate.set()
        assert [future.result(20).error for future in waiting] == [None] * MAX_PATIENT
        assert lanes.ask(PEER, peer.question("late"), 0).error is None


def test_lanes_of_addresses_that_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "KEPT_LANES", 3)
    peer, clock = Peer(), Clock()
    with running(clock) as lanes:
        for n in range(20):
            assert lanes.ask(f"192.0.2.1:{n}", peer.question("a"), 0).error is None
            wait_until(lambda: not any(lane.is_busy for lane in lanes._lanes.values()))
            clock.ms += 6_000
        assert len(lanes._lanes) <= 3


def test_a_lane_sends_one_request_at_a_time() -> None:
    """Also when it waits several times over for a worker."""
    peer = Peer()
    peer.gate.clear()
    lanes = Lanes(lambda _account: Answering(), Clock(), 3)
    asked = [lanes.poll(PEER, peer.question(f"q{n}")) for n in range(2)]
    lanes.start()
    assert peer.entered.acquire(timeout=20)
    assert not peer.entered.acquire(timeout=0.2)
    peer.gate.set()
    assert [future.result(20).error for future in asked] == [None, None]
    lanes.stop()


def test_old_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_answers, "KEPT_ANSWERS", 2)
    peer = Peer()
    with running(Clock()) as lanes:
        for name in ("a", "b", "a", "c", "a", "b"):
            lanes.ask(PEER, peer.question(name), 60_000)
    assert [name for _, name in peer.asked] == ["a", "b", "c", "b"]


def sized(size: int, name: str, asked: list[str]) -> Question[str]:
    """A question whose answer is received in so many bytes."""

    def run(client: AdminClient, address: str) -> str:
        asked.append(f"{address} {name}")
        client.call(address, RequestCode.PULL_MESSAGE, extra={"size": str(size)})
        return name

    return Question(name, run)


class Sized(Answering):
    """Answers as many bytes as the request says."""

    def call(self, address: str, code: Any, *rest: Any, **options: Any) -> RemotingCommand:
        self.size = int((options.get("extra") or {}).get("size", 0))
        return super().call(address, code, *rest, **options)


def test_answers_of_a_hostile_broker_leave_those_of_others_and_do_not_pile_up() -> None:
    client, clock, asked = Sized(), Clock(), list[str]()
    lanes = Lanes(lambda _account: client, clock, 1)
    lanes.start()
    other = "192.0.2.2:10911"
    assert lanes.ask(other, sized(1_000, "own", asked), 60_000).value == "own"
    for n in range(100):
        clock.ms += 1_000
        assert lanes.ask(PEER, sized(lanes_module.MOST_BYTES // 2, f"q{n}", asked), 0).value
    held = [answer.size for answer in lanes._kept._answers.values()]
    assert sum(held) <= kept_answers.SHARE_BYTES + 2_000
    assert lanes.ask(other, sized(1_000, "own", asked), 600_000).value == "own"
    assert lanes.ask(PEER, sized(1, "q99", asked), 600_000).value == "q99"
    assert asked.count(f"{other} own") == asked.count(f"{PEER} q99") == 1
    lanes.stop()


def test_what_keeps_little_of_much_counts_as_little() -> None:
    client, asked = Sized(), list[str]()
    lanes = Lanes(lambda _account: client, Clock(), 1)
    lanes.start()
    large = replace(sized(lanes_module.MOST_BYTES // 2, "names", asked), size_of=len)
    assert lanes.ask(PEER, large, 60_000).value == "names"
    assert lanes._kept._bytes == len("names")
    lanes.stop()


def test_answers_of_all_brokers_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_answers, "KEPT_BYTES", 10_000)
    client, asked = Sized(), list[str]()
    lanes = Lanes(lambda _account: client, Clock(), 1)
    lanes.start()
    for n in range(20):
        for _ in range(2):
            assert lanes.ask(f"192.0.2.2:{n}", sized(1_000, "a", asked), 600_000).value == "a"
    assert len(asked) == 20
    assert sum(answer.size for answer in lanes._kept._answers.values()) == lanes._kept._bytes
    assert 8_000 < lanes._kept._bytes <= 10_000
    lanes.stop()


@pytest.mark.parametrize(
    ("code", "is_read"),
    [(RequestCode.GET_BROKER_RUNTIME_INFO, False), (RequestCode.QUERY_MESSAGE, True)],
)
def test_only_messages_may_be_large(code: RequestCode, is_read: bool) -> None:
    client = Answering()
    client.size = lanes_module.MOST_BYTES
    lanes = Lanes(lambda _account: client, Clock(), 1)
    lanes.start()
    question = Question("a", lambda one, address: len(one.call(address, code).body))
    answer = lanes.ask(PEER, question, 0)
    lanes.stop()
    assert (answer.value is not None) == is_read
    if not is_read:
        assert answer.error is not None
        assert "the console reads at most 8,388,608" in answer.error
