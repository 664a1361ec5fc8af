"""Stand-ins for the tests of broker managers and processors: clock, connection, store, goldens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from broker.out.escape_bridge import EscapedMessage
from broker.settings.broker_config import BrokerConfig
from broker.store_access.store_access import StoreAccess
from broker.store_access.store_commands import StoreCommands
from remoting.body.heartbeat import SubscriptionData
from remoting.frame import HEAD
from remoting.remoting_codec import decode_command
from remoting.remoting_command import RemotingCommand
from remoting.remoting_serializable import loads_lenient
from store.boundary_type import BoundaryType
from tests.remoting.golden_frames import GOLDEN, GoldenFrame

GOLDEN_CONFIG = GOLDEN / "store-G" / "master" / "config"
CONFIG = BrokerConfig(
    broker_name="broker-g",
    broker_cluster_name="GoldenCluster",
    broker_ip1="127.0.0.2",
    broker_ip2="127.0.0.2",
)
_ids = count(1)


class FakeClock:
    """Two clocks that stand still until told."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now = now_ms
        self.monotonic = 5_000

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.monotonic

    def monotonic_ns(self) -> int:
        return self.monotonic * 1_000_000

    def since_boot_ms(self) -> int:
        return self.monotonic

    def advance(self, delta_ms: int) -> None:
        self.now += delta_ms
        self.monotonic += delta_ms


class OtherBrokers:
    """An EscapeBridge to brokers that take what is put, but for the errors of the next puts."""

    def __init__(self) -> None:
        self.errors: list[Exception | None] = []
        self.taken: list[EscapedMessage] = []
        self.like: list[str | None] = []
        """With each message."""

    def put(self, message: EscapedMessage, like: str | None = None) -> None:
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        self.taken.append(message)
        self.like.append(like)

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.taken]


class FakeConnection:
    """Remembers what was sent."""

    def __init__(self, remote_address: str = "127.0.0.1:40000") -> None:
        self.remote_address = remote_address
        self.connection_id = next(_ids)
        self.is_from_this_machine = False
        self.is_open = True
        self.sent: list[RemotingCommand] = []
        self.close_reason: str | None = None

    def send_command(self, command: RemotingCommand) -> None:
        self.sent.append(command)

    def write(self, frame: bytes) -> None:
        """A whole frame, without a body."""
        length, word = HEAD.unpack_from(frame)
        assert length == len(frame) - 4 == (word & 0xFFFFFF) + 4
        self.sent.append(decode_command(frame[HEAD.size :], word >> 24, b""))

    def close(self, reason: str) -> None:
        self.is_open = False
        self.close_reason = reason


@dataclass
class StoredMessage:
    """One message of a queue."""

    phy_offset: int
    store_ms: int
    size: int = 100
    tags: int = 0
    record: bytes = b""


@dataclass
class FakeStore(StoreAccess, StoreCommands):
    """StoreAccess and StoreCommands over lists.

    `queues` maps (topic, queue id) to (min offset, messages from there on).
    """

    queues: dict[tuple[str, int], tuple[int, list[StoredMessage]]] = field(default_factory=dict)
    memory_from: int = 0
    index: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    commands: list[tuple[Any, ...]] = field(default_factory=list)
    failure: Exception | None = None
    min_phy_offset: int = 0
    max_phy_offset: int = 0
    records: dict[int, bytes] = field(default_factory=dict)
    index_queries: list[tuple[Any, ...]] = field(default_factory=list)

    def put(self, topic: str, queue_id: int, *messages: StoredMessage, base: int = 0) -> None:
        self.queues[topic, queue_id] = (base, list(messages))

    def fill(self, topic: str, queue_id: int, count_: int, last_store_ms: int) -> None:
        """`count_` messages, one a ms, the last at `last_store_ms`; offsets are made up."""
        start = len(self.queues) * 1_000_000
        self.put(
            topic,
            queue_id,
            *(
                StoredMessage(start + i * 100, last_store_ms - (count_ - 1 - i))
                for i in range(count_)
            ),
        )

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        base, messages = self.queues.get((topic, queue_id), (0, []))
        return base, base + len(messages)

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.offsets(topic, queue_id)[0]

    def known_queues(self, topic: str) -> list[int]:
        return [queue_id for name, queue_id in self.queues if name == topic]

    def record_at(self, phy_offset: int) -> bytes | None:
        return self.records.get(phy_offset)

    def store_timestamp_at(self, phy_offset: int) -> int:
        for _, messages in self.queues.values():
            for message in messages:
                if message.phy_offset == phy_offset:
                    return message.store_ms
        return -1

    def offset_by_timestamp(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: int,
        boundary: BoundaryType | None = None,
    ) -> int:
        base, messages = self.queues.get((topic, queue_id), (0, []))
        if boundary is BoundaryType.UPPER:
            older = sum(1 for message in messages if message.store_ms <= timestamp_ms)
            return base + max(older - 1, 0)
        return base + sum(1 for message in messages if message.store_ms < timestamp_ms)

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        base, messages = self.queues.get((topic, queue_id), (0, []))
        if not base <= queue_offset < base + len(messages):
            return None
        message = messages[queue_offset - base]
        return message.phy_offset, message.size, message.tags

    def in_memory(self, phy_offset: int) -> bool:
        return phy_offset >= self.memory_from

    def query_index(
        self, topic: str, key: str, max_num: int, begin_ms: int, end_ms: int
    ) -> tuple[list[int], int, int]:
        self.index_queries.append((topic, key, max_num, begin_ms, end_ms))
        return self.index.get((topic, key), [])[:max_num], 1795177744588, 24364

    def delete_topic_queues(self, topic: str) -> None:
        self._command("delete_topic_queues", topic)
        for key in [key for key in self.queues if key[0] == topic]:
            del self.queues[key]

    def clean_unused_topic(self, retained: Sequence[str]) -> None:
        self._command("clean_unused_topic", tuple(retained))

    def clean_expired_consume_queue(self) -> None:
        self._command("clean_expired_consume_queue")

    def delete_expired_commit_log(self) -> None:
        self._command("delete_expired_commit_log")

    def _command(self, *words: Any) -> None:
        if self.failure is not None:
            raise self.failure
        self.commands.append(words)


class FakeSubmit:
    """ScheduledExecutor.submit that runs nothing until told."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, Callable[[], None]]] = []

    def __call__(self, name: str, function: Callable[[], None]) -> None:
        self.waiting.append((name, function))

    def run_all(self) -> list[str]:
        waiting, self.waiting = self.waiting, []
        for _, function in waiting:
            function()
        return [name for name, _ in waiting]


def golden(code: int, number: int = 1) -> tuple[RemotingCommand, RemotingCommand | None]:
    """Request and answer number `number` of a code, as Java exchanged them."""
    directory = next(GOLDEN.glob(f"wire-json/{code:03d}-*"))
    request = GoldenFrame(directory / f"{number:02d}.req.bin", "request").command()
    answer = directory / f"{number:02d}.resp.bin"
    return request, GoldenFrame(answer, "response").command() if answer.exists() else None


def assert_same_answer(ours: RemotingCommand | None, java: RemotingCommand | None) -> None:
    """Everything but language and the order of JSON members."""
    assert ours is not None
    assert java is not None
    assert_same_head(ours, java)
    assert json_of(ours.body) == json_of(java.body)


def assert_same_head(ours: RemotingCommand, java: RemotingCommand) -> None:
    assert (ours.code, ours.remark, ours.flag, ours.opaque) == (
        java.code,
        java.remark,
        java.flag,
        java.opaque,
    )
    assert ours.has_ext_fields == java.has_ext_fields
    assert ours.ext_fields == java.ext_fields


def json_of(body: bytes) -> Any:
    return loads_lenient(body) if body else None


def request_of(code: int, body: bytes = b"", **ext_fields: Any) -> RemotingCommand:
    """A request with camelCase fields."""
    return RemotingCommand.request(
        code, {key: str(value) for key, value in ext_fields.items()}, body
    )


def config_path(tmp_path: Path, name: str) -> Path:
    return tmp_path / "config" / name


class FakeGroupFilters:
    """GroupFilters that remember."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []

    def register(self, group: str, subscriptions: Sequence[SubscriptionData]) -> None:
        self.events.append((group, *(subscription.topic for subscription in subscriptions)))

    def unregister(self, group: str) -> None:
        self.events.append((group,))
