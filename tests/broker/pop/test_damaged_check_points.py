"""The revive service over a real log: records of the revive topic that no broker wrote, which older
logs hold. They are passed over, counted, logged with their place; what follows is revived."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.append.room_waits import RoomWaits
from broker.pop.pop_check_point import PopCheckPoint
from broker.pop.pop_inflight_message_counter import PopInflightMessageCounter
from broker.pop.pop_revive_service import PopReviveService
from broker.pop.revive_parts import ReviveParts
from broker.pop.revive_progress import ReviveProgress
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from store import put_aside
from store.control_slots import MAX_PHY_OFFSET
from store.message_codec import decode_record
from tests.broker.broker_fakes import CONFIG
from tests.broker.hot_path_world import HotPathWorld, record
from tests.broker.pop.handle_world import Offsets

pytestmark = pytest.mark.interpreted

REVIVE = "rmq_sys_REVIVE_LOG_C"
RETRY = "%RETRY%G_T"
MOST_LONG, MOST_INT = (1 << 63) - 1, (1 << 31) - 1


class Records:
    """PutsCheckPoints: check points that are put again."""

    def __init__(self) -> None:
        self.put: list[PopCheckPoint] = []

    def put_check_point(
        self, point: PopCheckPoint, revive_queue_id: int, stored: Any, refused: Any
    ) -> None:
        assert -(1 << 63) <= point.deliver_ms < 1 << 63
        self.put.append(point)
        stored(0)


class Nothing:
    """CountsRevival, ReviveStats and the loop: what they are told is not looked at."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_of: None


class ReviveWorld:
    """A topic T with ten messages, and the revive service."""

    def __init__(self, root: Path) -> None:
        self.hot = HotPathWorld(root, file_size=1 << 18)
        hot = self.hot
        hot.topic("T")
        hot.topic(REVIVE, 2)
        self.now_ms = hot.clock.now_ms()
        self.records = Records()
        self.offsets = Offsets()
        self.service = PopReviveService(
            replace(CONFIG, revive_interval=1000, enable_retry_topic_v2=False),
            ReviveParts(
                commit_log=hot.log,
                append_queue=hot.append_queue,
                table=hot.table,
                units=hot.checked_units,
                reader=hot.loop_reader,
                offsets=self.offsets,
                records=self.records,
                topics=hot.topics,
                find_topic=hot.topics.find,
                find_group=lambda name: SubscriptionGroupConfig(group_name=name),
                inflight=PopInflightMessageCounter(0),
                progress=ReviveProgress(root / "progress", b"0" * 16, 2),
                stats=Nothing(),
                counts=Nothing(),
                room_waits=RoomWaits(hot.counters, hot.clock),
                timer_read_time_ms=lambda: self.now_ms,
                published_offset=lambda: hot.counters[MAX_PHY_OFFSET],
                flushed_offset=lambda: hot.counters[MAX_PHY_OFFSET],
            ),
            REVIVE,
            2,
        )
        self.service.start(Nothing())
        for number in range(10):
            self.store("T", b"%d" % number)

    def store(self, topic: str, body: bytes, tag: str = "") -> None:
        properties = f"TAGS\x01{tag}".encode() if tag else b""
        self.hot.log.append(self.hot.log.topic(topic), (record(body, properties),))

    def point(self, **fields: Any) -> dict[str, Any]:
        """The JSON of a good check point, due now, of the message at offset 4."""
        tree = PopCheckPoint(
            start_offset=4, pop_time=self.now_ms - 10_000, invisible_time=9_000, num=1, topic="T",
            group="G", queue_offset_diff=[0], broker_name=CONFIG.broker_name,
        ).to_json()  # fmt: skip
        return {**tree, **fields}

    def store_point(self, **fields: Any) -> None:
        self.store(REVIVE, json.dumps(self.point(**fields)).encode(), "ck")

    def look(self, times: int = 3) -> None:
        """Everything is dispatched and some looks go by."""
        for _ in range(times):
            self.hot.turn()
            self.hot.dispatch()
            self.service.run_pass()
        self.hot.turn()

    @property
    def revived(self) -> list[bytes]:
        """The bodies of what was copied to the retry topic."""
        messages = [decode_record(raw, 0)[0] for raw in self.hot.raw_records()]
        return [message.body for message in messages if message.topic == RETRY]


@pytest.fixture(autouse=True)
def records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of its own: each place is named once in the life of one."""
    monkeypatch.setattr(put_aside, "RECORDS", put_aside.PutAside())


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ReviveWorld]:
    world = ReviveWorld(tmp_path)
    yield world
    world.hot.close()


def test_a_good_one_is_revived(world: ReviveWorld) -> None:
    world.store_point()
    world.look()
    assert world.revived == [b"4"]
    assert world.service.damaged == 0


DAMAGED = [
    {"n": 60_000_000, "d": []},
    {"n": MOST_INT, "d": [0]},
    {"n": 33, "d": []},
    {"n": -1},
    {"d": [0] * 33},
    {"d": [-1]},
    {"pt": 946_000_000_000_000},
    {"pt": MOST_LONG, "it": MOST_LONG},
    {"pt": -1},
    {"it": -MOST_LONG},
    {"it": MOST_LONG},
    {"it": 86_500_000},
    {"rp": "-99999"},
    {"rp": "-1"},
    {"q": -1},
    {"so": -5},
    {"t": ""},
    {"c": ""},
    {"t": None},
    {"pt": "x"},
    {"t": "T" * 70_000},
]


@pytest.mark.parametrize("fields", DAMAGED, ids=[str(fields)[:40] for fields in DAMAGED])
def test_a_damaged_one_is_passed_over(
    world: ReviveWorld, fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It hung the process, ended it at every start, or kept everything behind it waiting."""
    world.store_point(**fields)
    world.store_point(so=7)
    world.look()
    assert world.revived == [b"7"]
    assert world.service.damaged == 1
    assert not world.records.put
    [line] = [each.getMessage() for each in caplog.records if "put aside" in each.getMessage()]
    assert line.startswith("pop_revival: a record cannot be read and is put aside: ")
    assert re.search(r" phy offset \d+: ", line)
    assert len(line) < 600
    assert world.offsets.query_offset("CID_RMQ_SYS_REVIVE_GROUP", REVIVE, 0) == 1


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"[" * 5_000, b"\xff\xfe", b"0"])
@pytest.mark.parametrize("tag", ["ck", "ack", "bAck"])
def test_what_is_no_body_is_passed_over(world: ReviveWorld, body: bytes, tag: str) -> None:
    world.store(REVIVE, body, tag)
    world.store_point(so=7)
    world.look()
    assert world.revived == [b"7"]


def test_acks_of_millions_are_passed_over_in_little_time(world: ReviveWorld) -> None:
    ack = {"c": "G", "t": "T", "q": 0, "so": 4, "pt": world.now_ms - 10_000, "ao": -1}
    world.store_point()
    world.store(REVIVE, json.dumps({**ack, "aol": [9] * 20_000}).encode()[:60_000], "bAck")
    world.store(REVIVE, json.dumps({**ack, "aol": list(range(10, 10_000))}).encode(), "bAck")
    world.store(REVIVE, json.dumps({**ack, "aol": [5, 6] + [7] * 15_000}).encode(), "bAck")
    world.look()
    assert world.revived == [b"4"]
    assert world.service.damaged == 1


def test_offsets_beyond_its_number_are_not_its_own(world: ReviveWorld) -> None:
    world.store_point(n=1, d=[1, 3])
    world.look()
    assert world.revived == [b"5"]


def test_an_ack_of_it_counts(world: ReviveWorld) -> None:
    ack = {"c": "G", "t": "T", "q": 0, "so": 4, "pt": world.now_ms - 10_000, "ao": 4}
    world.store_point(n=2, d=[0, 1])
    world.store(REVIVE, json.dumps(ack).encode(), "ack")
    world.look()
    assert world.revived == [b"5"]


def test_a_clock_that_was_set_back_delays_what_is_due_by_a_minute_at_most(
    world: ReviveWorld,
) -> None:
    """The timer delivers a check point when it is due; it may have had another clock."""
    world.store_point(pt=world.now_ms + 7_200_000)
    world.store_point(so=7)
    world.look()
    assert (world.revived, world.service.damaged) == ([], 0)
    world.now_ms += 60_000
    world.look()
    assert world.revived == [b"4", b"7"]


@pytest.mark.parametrize("rp", ["127", "4294967296", "9" * 5_000, "x", "", "16", "17"])
def test_one_that_was_put_again_very_often_is_put_again(world: ReviveWorld, rp: str) -> None:
    """Its unit cannot be read now. What it waits counts from now, however old it is."""
    world.hot.dispatch()
    world.store_point(pt=1, it=1, rp=rp)
    unreadable = replace(world.service._parts, units=_Unreadable(world.hot.checked_units))
    world.service._parts = unreadable
    world.look()
    [again] = world.records.put
    assert again.revive_time >= world.now_ms + 10_000
    assert 0 < again.parse_re_put_times() <= 127


def test_a_message_of_a_queue_that_is_being_built_again_is_not_lost(world: ReviveWorld) -> None:
    """It was taken for expired, since the queue ended before it; the log knew better."""
    world.hot.dispatch()
    world.store_point()
    world.store_point(so=10)  # no message has this one
    world.service._parts = replace(world.service._parts, table=_Shorter(world.hot.table))
    world.look()
    [again] = world.records.put
    assert (again.start_offset, again.queue_offset_diff) == (4, [0])
    assert again.revive_time >= world.now_ms + 10_000


class _Shorter:
    """Of T there are four messages, as yet."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        low, high = self._table.offsets(topic, queue_id)
        return (low, min(high, 4)) if topic == "T" else (low, high)


class _Unreadable:
    """Units of T are being rebuilt."""

    def __init__(self, units: Any) -> None:
        self._units = units

    def read(self, topic: str, *place: int) -> bytes:
        return b"" if topic == "T" else self._units.read(topic, *place)


LONG = st.integers(-MOST_LONG, MOST_LONG) | st.sampled_from([0, 1, -1, MOST_INT, 1 << 53])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "n": LONG | st.integers(0, 40),
        "so": LONG | st.integers(0, 12),
        "pt": LONG,
        "it": LONG,
        "q": LONG | st.integers(0, 4),
        "d": st.lists(LONG | st.integers(0, 12), max_size=40),
        "rp": st.text(max_size=4) | LONG.map(str),
        "t": st.text(max_size=4) | st.sampled_from(["T", RETRY, REVIVE, "%RETRY%"]),
        "c": st.text(max_size=4),
        "bn": st.text(max_size=4) | st.none(),
        "ao": LONG,
        "aol": st.lists(LONG, max_size=5),
    },
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(stored=st.lists(st.tuples(st.sampled_from(["ck", "ack", "bAck", "x"]), FIELDS), max_size=20))
def test_whatever_is_stored_there_what_is_behind_it_is_revived(
    tmp_path_factory: pytest.TempPathFactory, stored: list[tuple[str, dict[str, Any]]]
) -> None:
    world = ReviveWorld(tmp_path_factory.mktemp("revive"))
    try:
        for tag, fields in stored:
            world.store(REVIVE, json.dumps(world.point(**fields)).encode(), tag)
        world.store_point(c="honest", so=9)
        world.look()
        world.now_ms += 60_000
        world.look()
        messages = [decode_record(raw, 0)[0] for raw in world.hot.raw_records()]
        assert b"9" in [each.body for each in messages if each.topic == "%RETRY%honest_T"]
    finally:
        world.hot.close()
