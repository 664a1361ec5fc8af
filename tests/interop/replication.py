"""Broker groups of mixed kinds under test: their settings, their load, and the judges who compare.

A Group is one master and its slaves on one name server. The judges ask only what every kind of
broker answers (21, 28, 43, 45, 201) and read the commit-log files of both sides.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from remoting.remoting_serializable import loads_lenient
from remoting.request_code import RequestCode
from store.mapped_file import find_start_offset
from store.message import Message
from store.message_codec import RecordKind, check_record, decode_record
from store.store_checker import check_store
from tests.interop import harness
from tests.interop.clients import registered
from tests.interop.driver import Driver, DriverError, Entry, Producer, read_ledger
from tests.interop.processes import PeerError, wait_until

PAIRS = (
    ("ours", "ours"),
    ("ours", "java-4.9"),
    ("ours", harness.JAVA_5),
    ("java-4.9", "ours"),
    (harness.JAVA_5, "ours"),
)
"""(master's kind, slave's kind): every pair that contains ours."""
EVERY_KIND = (("ours", "ours"), ("ours", harness.JAVA_5), ("java-4.9", "ours"))
"""Each kind of broker once, each way once: in every run where PAIRS are in a long one."""
SEND_OK = "SEND_OK"
SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
_CATCH_UP_S = 60.0
# File sizes have to be equal; small, so that records cross the ends of several files. Java refuses
# what waits 200 ms in its queue, which a busy test machine brings about.
_COMMON = {
    "mappedFileSizeCommitLog": str(4 << 20),
    "registerNameServerPeriod": "10000",
    "slaveReadEnable": "true",
    "waitTimeMillsInSendQueue": "10000",
}


def pairs(default: Iterable[tuple[str, ...]] = PAIRS) -> list[tuple[str, ...]]:
    """The pairs under test: `default`, or what REPLICATION_PAIRS says.

    "java-4.9:java-4.9 java-5.3:java-4.9" is how the scenarios themselves are validated.
    """
    text = os.environ.get("REPLICATION_PAIRS")
    return [tuple(pair.split(":")) for pair in text.split()] if text else list(default)


def pair_sets(
    default: Iterable[tuple[str, ...]] = EVERY_KIND,
    *,
    long: Iterable[tuple[str, ...]] = (),
    quick: bool = False,
) -> list[Any]:
    """Parameters for scenarios that mostly wait: ours alone, and mixed pairs for `at_once`; of
    `long`, in a long run only, those that are not in `default`."""
    chosen = pairs(default)
    ours = [pair for pair in chosen if set(pair) == {"ours"}]
    mixed = [pair for pair in chosen if pair not in ours]
    others = [pair for pair in pairs(long) if pair not in chosen] if long else []
    found = [
        pytest.param(ours, id="ours", marks=[] if quick else pytest.mark.slow),
        pytest.param(mixed, id="mixed", marks=pytest.mark.slow),
        pytest.param(others, id="others", marks=pytest.mark.long),
    ]
    return [param for param in found if param.values[0]]


def at_once(scenario: Callable[[Any], object], cases: Iterable[Any], most: int = 8) -> None:
    """Play a scenario with up to `most` cases at the same time; an error names its case."""
    with ThreadPoolExecutor(most) as pool:
        playing = [(case, pool.submit(scenario, case)) for case in cases]
    for case, done in playing:
        error = done.exception()
        if error is not None:
            error.add_note(f"with {case}")
            raise error


def kinds_id(kinds: Iterable[str]) -> str:
    """How a group is called in the name of a test."""
    return "-to-".join(kinds)


class Group:
    """One master and its slaves; `role` is the master's."""

    def __init__(
        self,
        directory: Path,
        namesrv: str,
        kinds: Sequence[str],
        *,
        role: str = "ASYNC_MASTER",
        name: str = "broker-a",
        conf: Mapping[str, str] | None = None,
        slave_conf: Mapping[str, str] | None = None,
    ) -> None:
        """kinds: the master's and each slave's. conf: of all members; slave_conf: of the slaves."""
        self.name = name
        self.role = role
        common = {**_COMMON, **(conf or {})}
        # A SYNC_MASTER waits for all; that is the default with one slave, but not of one since 5.0.
        is_told = role == "SYNC_MASTER" and (kinds[0] in harness.KINDS_5 or len(kinds) > 2)
        waiting = {"inSyncReplicas": str(len(kinds))} if is_told else {}
        self.master = harness.broker(
            kinds[0],
            directory / "master",
            namesrv,
            name=name,
            conf={"brokerRole": role, **waiting, **common},
        )
        self.slaves = [
            harness.broker(
                kind,
                directory / f"slave-{number}",
                namesrv,
                name=name,
                conf={
                    "brokerRole": "SLAVE",
                    "brokerId": str(number),
                    **common,
                    **(slave_conf or {}),
                },
            )
            for number, kind in enumerate(kinds[1:], 1)
        ]

    @property
    def slave(self) -> harness.Broker:
        """The only one."""
        (slave,) = self.slaves
        return slave

    @property
    def members(self) -> list[harness.Broker]:
        """The master first."""
        return [self.master, *self.slaves]

    def addresses(self) -> dict[str, str]:
        """{brokerId: address} as a name server must know it."""
        return {str(number): member.address for number, member in enumerate(self.members)}

    def start(self) -> Group:
        """Boot all members: the master first, so that no slave has to wait for its next try."""
        self.master.start()
        start_all(self.slaves)
        return self

    def end(self) -> None:
        """Kill whatever lives."""
        for member in self.members:
            member.kill()


def start_all(brokers: Iterable[harness.Broker]) -> None:
    """Start them at the same time, and wait for each one's boot line."""
    with ThreadPoolExecutor() as pool:
        for started in [pool.submit(broker.start) for broker in brokers]:
            started.result()


def wait_group_registered(driver: Driver, namesrv: str, group: Group) -> None:
    """Until the name server knows every member."""
    expected = group.addresses()
    what = f"all of {group.name} registered"
    wait_until(
        lambda: registered(driver, namesrv).get(group.name) == expected, what, 60, poll_s=0.1
    )


# -- what a broker says ----------------------------------------------------------------------------


def ask(broker: harness.Broker, code: int) -> dict[str, Any]:
    """The JSON of one answer; empty where the broker has nothing to tell (a code other than 0)."""
    with broker.client() as client:
        answer = client.call(code, {})
    return dict(loads_lenient(answer.body)) if answer.code == 0 and answer.body else {}


def ha_status(broker: harness.Broker) -> dict[str, Any]:
    """What a broker of ours, or one of 5.x, says of its replication (907)."""
    return ask(broker, 907)


def log_end(broker: harness.Broker) -> int:
    """Where its commit log ends now; -1 when it does not tell (a Java one that has just booted)."""
    try:
        table = ask(broker, 28).get("table", {})
    except OSError:
        return -1
    return int(table.get("commitLogMaxOffset", -1))


@dataclass(frozen=True, slots=True)
class Tables:
    """The metadata of one broker, as its answers to 21, 201, 43 and 45 tell it."""

    topics: dict[str, tuple[Any, ...]]
    groups: dict[str, tuple[Any, ...]]
    offsets: dict[tuple[str, int], int]
    delays: dict[int, int]


_TOPIC_FIELDS = ("readQueueNums", "writeQueueNums", "perm", "order", "topicFilterType")
_GROUP_FIELDS = (
    "consumeEnable",
    "consumeFromMinEnable",
    "consumeBroadcastEnable",
    "retryQueueNums",
    "retryMaxTimes",
    "brokerId",
    "whichBrokerWhenConsumeSlowly",
)


_REVIVE_TOPICS = "rmq_sys_REVIVE_LOG_"
"""Of pop's check points: built in, in 5.x only."""


def tables(broker: harness.Broker) -> Tables:
    """Ask for all four kinds; only what 4.9 and 5.3 both have is kept."""
    topics, groups, offsets, delays = (ask(broker, code) for code in (21, 201, 43, 45))
    if broker.kind == "java-4.9" and not delays:
        # As a slave it only writes them into the file, for the time after its promotion.
        file = broker.store_dir / "config" / "delayOffset.json"
        delays = loads_lenient(file.read_bytes()) if file.exists() else {}
    return Tables(
        {
            name: row
            for name, row in _rows(topics.get("topicConfigTable", {}), _TOPIC_FIELDS).items()
            if not name.startswith(_REVIVE_TOPICS)
        },
        _rows(groups.get("subscriptionGroupTable", {}), _GROUP_FIELDS),
        {
            (key, int(queue)): int(offset)
            for key, queues in offsets.get("offsetTable", {}).items()
            for queue, offset in queues.items()
        },
        {int(level): int(offset) for level, offset in delays.get("offsetTable", {}).items()},
    )


def _rows(
    table: Mapping[str, Mapping[str, Any]], fields: tuple[str, ...]
) -> dict[str, tuple[Any, ...]]:
    return {name: tuple(row[field] for field in fields) for name, row in table.items()}


def make_many(master: harness.Broker, count: int = 5_000) -> None:
    """So many topics and groups that a 5.x broker has: a peer of 5.5 asks for pages of 2,000."""
    names = [f"many-{number:05}" for number in range(count)]
    with master.client() as client:
        for begin in range(0, count, 500):
            some = names[begin : begin + 500]
            topics = [{"topicName": name, "perm": 6, "readQueueNums": 1} for name in some]
            body = json.dumps({"topicConfigList": topics}).encode()
            assert client.call(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, body).code == 0
            groups = [{"groupName": name} for name in some]
            body = json.dumps({"groupConfigList": groups}).encode()
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
            assert client.call(code, {}, body).code == 0


def wait_same_tables(master: harness.Broker, slave: harness.Broker, timeout_s: float) -> None:
    """Until the slave tells the same as its master of all four kinds of metadata."""
    try:
        wait_until(
            lambda: tables(slave) == tables(master), "the same metadata", timeout_s, poll_s=0.25
        )
    except PeerError as error:
        theirs, ours = tables(master), tables(slave)
        different = [
            f"{name}: master {sorted(expected - found)}, slave {sorted(found - expected)}"
            for name in Tables.__slots__
            if (expected := set(getattr(theirs, name).items()))
            != (found := set(getattr(ours, name).items()))
        ]
        raise AssertionError(f"{error} at {slave.process.name}: {different}") from None


# -- the logs --------------------------------------------------------------------------------------


def log_files(broker: harness.Broker) -> dict[int, Path]:
    """Commit-log files by the offset at which they start, in order."""
    found = {
        start: path
        for path in (broker.store_dir / "commitlog").iterdir()
        if (start := find_start_offset(path.name)) is not None
    }
    return dict(sorted(found.items()))


def wait_caught_up(group: Group, timeout_s: float = _CATCH_UP_S) -> int:
    """Until every slave's log ends where the master's does; that offset."""
    ends: list[int] = []

    def is_even() -> bool:
        ends[:] = [log_end(member) for member in group.members]
        return len(set(ends)) == 1 and ends[0] > 0

    try:
        wait_until(is_even, f"slaves of {group.name} at its master's end", timeout_s)
    except PeerError as error:
        tails = "\n".join(member.log_tail() for member in group.members)
        raise PeerError(f"{error}; ends {ends}\n{tails}") from None
    return ends[0]


def assert_same_log(master: harness.Broker, slave: harness.Broker, end: int) -> int:
    """Byte by byte, from the slave's first file to `end`; where the slave's log begins."""
    theirs, ours = log_files(master), log_files(slave)
    start = min(ours)
    size = ours[start].stat().st_size
    for at in range(start, end, size):
        assert ours[at].stat().st_size == theirs[at].stat().st_size == size, at
        length = min(size, end - at)
        expected, found = _head(theirs[at], length), _head(ours[at], length)
        if expected != found:
            first = next(n for n in range(length) if expected[n] != found[n])
            raise AssertionError(
                f"{slave.process.name} differs from {master.process.name} at {at + first} of {end}"
            )
    return start


def _head(path: Path, length: int) -> bytes:
    with path.open("rb") as file:
        return file.read(length)


def messages(broker: harness.Broker) -> Iterator[Message]:
    """Every record of its log files, in order, whether it runs or not."""
    for start, path in log_files(broker).items():
        view = path.read_bytes()
        position = 0
        while position < len(view):
            found = check_record(view, position, len(view), start + position, check_crc=True)
            if found.kind is not RecordKind.MESSAGE:
                assert found.kind is not RecordKind.INVALID, f"{path} at {position}: {found.reason}"
                break
            yield decode_record(view, position)[0]
            position += found.size


def assert_holds(broker: harness.Broker, topic: str, acknowledged: Iterable[Entry]) -> None:
    """Every acknowledged message is in the broker's log, at its queue offset."""
    there = {
        (message.queue_id, message.queue_offset): message.find_property("u_seq")
        for message in messages(broker)
        if message.topic == topic
    }
    lost = [
        entry
        for entry in acknowledged
        if there.get((entry.queue_id, entry.queue_offset)) != str(entry.seq)
    ]
    assert not lost, f"{len(lost)} missing at {broker.process.name}, the first: {lost[:3]}"


def assert_stores_whole(group: Group) -> None:
    """Our members stop orderly, and nothing is to be said against their stores."""
    for member in group.members:
        if member.kind == "ours":
            member.stop()
            report = check_store(member.store_dir)
            assert report.is_clean, report.lines()
            assert not report.unclean


def fill(broker: harness.Broker, topic: str, size: int, *, text: str = "x") -> None:
    """Write at least `size` bytes of messages of 8 KiB to queues 0 to 3 of a topic of its own."""
    body_size = 8192
    with broker.client(timeout_s=30) as client:
        for number in range(size // body_size + 1):
            body = f"{text} {number} ".encode().ljust(body_size, b".")
            sent = client.send(topic, number % 4, body)
            assert sent.code == 0, sent.remark


# -- load ------------------------------------------------------------------------------------------


class Load:
    """Sends to a topic that go on until `stop`; what was not acknowledged is no fault."""

    def __init__(
        self, producer: Producer, topic: str, *, first: int = 0, rate: float = 400.0
    ) -> None:
        self.topic = topic
        self.errors: list[str] = []
        self._producer = producer
        self._begun = producer.begin_send(topic, "sync", 10_000_000, first=first, rate=rate)

    def count(self) -> int:
        """How many were answered."""
        return int(self._producer.driver.call("send.count", ledger=self._begun[1]))

    def answered(self) -> list[Entry]:
        """What was answered so far."""
        self.count()
        return read_ledger(self._begun[1])

    def wait_for_more(self, count: int, timeout_s: float = 60.0) -> None:
        """Until that many more were answered."""
        goal = self.count() + count
        wait_until(lambda: self.count() >= goal, f"{goal} sends to {self.topic}", timeout_s)

    def wait_for_acknowledged(self, count: int, timeout_s: float = 60.0) -> None:
        """Until so many were answered with SEND_OK; some may be answered otherwise."""
        self.wait_for_more(count, timeout_s)
        what = f"{count} acknowledged sends to {self.topic}"
        wait_until(lambda: len(acknowledged(self.answered())) >= count, what, timeout_s)

    def stop(self) -> list[Entry]:
        """End it; what was answered. `errors` has what was not."""
        self._producer.driver.call("send.stop", ledger=self._begun[1])
        self.errors = self._begun[0].result(60)["errors"]
        return read_ledger(self._begun[1])


def send_one(producer: Producer, topic: str, **settings: Any) -> str:
    """Send one message, settings as in Producers.java; the status."""
    message = {"topic": topic, "body": "one", "tags": "TagA", "keys": "one", **settings}
    answer = producer.driver.call("send.one", producer=producer.name, **message)
    return str(answer["status"])


def wait_status(producer: Producer, topic: str, status: str, timeout_s: float = 40.0) -> None:
    """Until a send is answered with `status`; until then it may also fail."""

    def is_answered_so() -> bool:
        try:
            return send_one(producer, topic) == status
        except DriverError:
            return False

    wait_until(is_answered_so, f"a send that gets {status}", timeout_s)


def acknowledged(entries: Iterable[Entry]) -> list[Entry]:
    """Those of which a SYNC_MASTER said that its slave has them."""
    return [entry for entry in entries if entry.note == SEND_OK]
