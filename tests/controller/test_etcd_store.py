"""EtcdStore: what two controllers' stores ask of an etcd, and what they make of its answers.

The answers are a real etcd 3.4.23's, recorded with the requests (tests/controller/etcd_capture.py),
and have to be asked for in the same words.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.etcd_client import EtcdClient, EtcdError
from controller.etcd_config import EtcdConfig
from controller.etcd_login import EtcdLogin
from controller.etcd_store import EtcdStore, Groups, LeaderSeen
from controller.events import Outcome, Stored, Swap, SwapEnded
from controller.group_codec import encode_groups
from controller.group_store import UnreadableGroupError
from tests.controller.etcd_capture import GOLDEN, ONE, PREFIX, TWO, group, play
from tests.controller.fake_gateway import Step, answer, gateway
from tests.support.etcd import b64

SESSION: list[dict[str, Any]] = json.loads((GOLDEN / "session.json").read_text())


def store(port: int) -> EtcdStore:
    endpoints = EtcdConfig(etcd_endpoints=f"127.0.0.1:{port}").endpoints()
    return EtcdStore(EtcdClient(endpoints, None, EtcdLogin, 5_000), PREFIX, lambda: 0)


def test_a_session_of_two_controllers() -> None:
    steps = [answer(one["status"], one["answer"], one["type"]) for one in SESSION]
    with gateway(*steps) as etcd:
        gave = play(store(etcd.port), store(etcd.port), lambda: None)
    assert [(one.path, one.body) for one in etcd.asked] == [
        (one["path"], one["asked"]) for one in SESSION
    ]
    nobody, lease, fence, nothing, first, stored, none = gave[:7]
    assert nobody == LeaderSeen(None, 0, 0)
    assert nothing == Groups({}, {}, fence)
    assert first == SwapEnded("b", 1, Outcome.DONE, fence + 1)
    assert (stored, none) == (Stored(fence + 1, group("b")), Stored(0, None))
    stale, second, renewed, seen, other_lease, refused, news = gave[7:14]
    assert stale == SwapEnded("b", 2, Outcome.CONFLICT)
    assert second == SwapEnded("b", 3, Outcome.DONE, fence + 2)
    assert renewed
    assert seen == LeaderSeen(ONE, fence, lease)
    assert refused is None
    assert news == Groups({"b": Stored(fence + 2, group("b", 2))}, {}, fence + 2)
    lost, without_leader, newer, successor, fenced, deposed = gave[14:20]
    assert lost is None
    assert without_leader == SwapEnded("b", 4, Outcome.FENCED)
    assert newer > fence + 2
    assert successor == LeaderSeen(TWO, newer, other_lease)
    assert fenced == SwapEnded("b", 5, Outcome.FENCED)
    assert deposed is None
    spoilt, why, names = gave[20:]
    assert spoilt.readable == news.readable
    assert list(spoilt.unreadable) == ["x"]
    assert spoilt.unreadable["x"] == why
    assert "key b'/rocketmq/controllers/group1/set/x' is none that a controller writes" in why
    assert "it does not end with its check sum" in why
    assert names == ["b", *(f"many{number:02}" for number in range(43))]


KEY = f"{PREFIX}/set/b"


def one_key(key: str = KEY, value: bytes = b"", **more: Any) -> dict[str, Any]:
    return {"key": b64(key), "value": b64(value), "mod_revision": "5", **more}


def ranged(*found: dict[str, Any], **more: Any) -> Step:
    return answer(200, json.dumps({"header": {"revision": "9"}, "kvs": found, **more}))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "check sum"),
        (encode_groups({"c": Stored(0, group("c"))}), "it is the text of .'c'."),
        (encode_groups({}), "it is the text of"),
        (encode_groups({"b": Stored(0, group("b")), "c": Stored(0, None)}), "it is the text of"),
        (encode_groups({"b": Stored(0, group("b"))}).replace(b"127", b"128"), "check sum is not"),
    ],
)
def test_a_value_that_no_controller_wrote_is_not_an_empty_group(value: bytes, words: str) -> None:
    with gateway(ranged(one_key(value=value)), ranged(one_key(value=value))) as etcd:
        with pytest.raises(UnreadableGroupError, match=words):
            store(etcd.port).load("b")
        found = store(etcd.port).load_all()
    assert (found.readable, list(found.unreadable)) == ({}, ["b"])


def test_names_are_any_text() -> None:
    name = "a/b ü\U0001f600"
    value = encode_groups({name: Stored(0, group(name))})
    with gateway(ranged(one_key(f"{PREFIX}/set/{name}", value))) as etcd:
        assert store(etcd.port).load_all().readable == {name: Stored(5, group(name))}


@pytest.mark.parametrize(
    "found",
    [[one_key("/other")], [one_key(PREFIX)], [one_key(), one_key(f"{PREFIX}/leader")]],
)
def test_keys_that_were_not_asked_for_are_refused(found: list[dict[str, Any]]) -> None:
    for call in (lambda one: one.load("b"), lambda one: one.look(), lambda one: one.load_all()):
        with gateway(ranged(*found)) as etcd, pytest.raises(EtcdError, match="other keys"):
            call(store(etcd.port))


def test_pages_without_end_end() -> None:
    """A peer that always has more."""
    with gateway(*[ranged(more=True)] * 3, ranged(one_key(), more=True)) as etcd:
        assert store(etcd.port).load_all() == Groups({}, {}, 9)
        assert len(etcd.asked) == 1
    with gateway(*[ranged(one_key(f"{PREFIX}/set/a"), more=True)] * 2) as etcd:
        with pytest.raises(EtcdError, match="other keys"):
            store(etcd.port).load_all()
        assert len(etcd.asked) == 2
    steps = [ranged(one_key(f"{PREFIX}/set/{number:04}"), more=True) for number in range(600)]
    with gateway(*steps) as etcd, pytest.raises(EtcdError, match="more than 10000 groups"):
        store(etcd.port).load_all()


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"{}", b"[1]", b'{"id":"a","address":"b","x":1}', b"x" * 5_000),
        *(b'{"id":"a\\n","address":"b"}', b'{"id":"a","address":"\\u001b[31m"}'),
    ],
)
def test_a_leader_key_of_nobody_names_nobody(value: bytes) -> None:
    key = one_key(f"{PREFIX}/leader", value, create_revision="4", lease="3")
    with gateway(ranged(key)) as etcd:
        assert store(etcd.port).look() == LeaderSeen(None, 4, 3)


def txn(**more: Any) -> Step:
    return answer(200, json.dumps({"header": {"revision": "9"}, **more}))


@pytest.mark.parametrize(
    "step",
    [
        txn(),
        txn(responses=[{}]),
        txn(responses=[{"response_put": {}}]),
        txn(succeeded=True, header={"revision": "3"}),
    ],
)
def test_a_swap_with_half_an_answer_has_an_unknown_end(step: Step) -> None:
    with gateway(step) as etcd, pytest.raises(EtcdError):
        store(etcd.port).swap(Swap("b", 1, 5, 4, group("b")))


@pytest.mark.parametrize("found", [{"ID": "7", "TTL": "4"}, {"ID": "7"}, {"TTL": "5"}])
def test_a_shorter_lease_than_asked_for_counts_for_nothing(found: dict[str, str]) -> None:
    grant, kept = answer(200, json.dumps(found)), answer(200, json.dumps({"result": found}))
    with gateway(grant, kept) as etcd:
        with pytest.raises(EtcdError, match="a lease of"):
            store(etcd.port).make_lease(5)
        assert store(etcd.port).renew(7, 4, 5) is None


def test_a_lease_counts_from_when_it_was_asked_for() -> None:
    times = iter((100, 200))
    key = one_key(f"{PREFIX}/leader", create_revision="4", lease="7")
    lease = {"ID": "7", "TTL": "5"}
    steps = [answer(200, json.dumps(one)) for one in (lease, {"result": lease})]
    with gateway(*steps, ranged(key)) as etcd:
        one = store(etcd.port)
        one._now_ms = lambda: next(times)
        assert one.make_lease(5) == (7, 100)
        assert one.renew(7, 4, 5) == 200


def test_a_leader_key_of_another_is_no_leadership() -> None:
    key = one_key(f"{PREFIX}/leader", create_revision="4", lease="8")
    ranges = [{"response_put": {}}, {"response_range": {"header": {}, "kvs": [key]}}]
    with gateway(txn(succeeded=True, responses=ranges)) as etcd, pytest.raises(EtcdError):
        store(etcd.port).acquire(ONE, 7)
