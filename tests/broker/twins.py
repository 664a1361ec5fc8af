"""Twins: two brokers that get the same bytes, one with its hot routes, one without.

What they store, answer, count and keep has to be the same: whatever is served from its bytes
(broker/wiring/hot_routes.py) is what the general path would have made of it. Each broker is a
ServedBroker, put together as broker/wiring does it, access control in front included. Nothing of
what is compared is picked by the tests: they bring requests and circumstances only.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest import mock

from broker.metrics.metrics_table import METRICS, RPC_LATENCY
from broker.topic.system_topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from broker.transaction.transactional_message_service import TransactionalMessageService
from broker.wiring import transactional_messages
from ha.control_slots import (
    MASTER_EPOCH,
    MASTER_LINKED,
    MEMBER_ORDER,
    ORDER_TAKEN,
    PUTS_REFUSED,
    PUTS_UNTIL_MS,
    REPLICA_COUNT,
    REPLICATED_OFFSET,
    MemberRole,
    order_after,
)
from ipc.metric_slots import MetricSlotsReader
from remoting.body.topic_config import TopicConfig
from remoting.body.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from remoting.headers.extra_info_util import ExtraInfo, build_extra_info
from remoting.metrics.metric import Kind
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code
from remoting.request_processor import Route
from remoting.response_code import ResponseCode as Refused
from store.control_slots import (
    ALLOCATED_END,
    CONFIRM_OFFSET,
    FLUSHED_OFFSET,
    MAX_PHY_OFFSET,
    NO_BOUND,
    RUNNING_FLAGS,
)
from store.errors import QueueTableFullError
from store.message import Message
from store.message_codec import decode_record, is_blank_at
from store.record_again import record_again
from tests.broker.served_broker import (
    FILE_SIZE,
    SIGNERS,
    USERS_ON,
    ServedBroker,
    accounts_of,
)
from tests.broker.twin_requests import END, HALF, MOST_BODY, SEND, Ask, Turn, heartbeat_body
from tests.fuzz.served_connection import ServedConnection
from tests.support.frame_decoder import FrameDecoder

PRODUCER, CONSUMER = "P", "G"
NAME: Final = "broker-a"
TOPICS: Final = {
    "T": TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4),
    "Tags": TopicConfig(
        topic_name="Tags",
        read_queue_nums=4,
        write_queue_nums=2,
        topic_filter_type="MULTI_TAG",
    ),
    "Batches": TopicConfig(topic_name="Batches", attributes={"+queue.type": "BatchCQ"}),
    "Compact": TopicConfig(topic_name="Compact", attributes={"+cleanup.policy": "COMPACTION"}),
    "Static": TopicConfig(topic_name="Static", read_queue_nums=4, write_queue_nums=4),
    "ReadOnly": TopicConfig(topic_name="ReadOnly", perm=4),
}
"""With what there is for them: a broker that is asked for others has or makes none."""
_HERE = LogicQueueMappingItem(bname=NAME, queue_id=1, gen=1, logic_offset=10_000)
_THERE = LogicQueueMappingItem(bname="broker-b", queue_id=5, gen=0)
_GONE = LogicQueueMappingItem(bname="broker-b", queue_id=6, gen=1, logic_offset=10_000)
_MAPPING = TopicQueueMappingDetail(
    topic="Static",
    total_queues=3,
    bname=NAME,
    epoch=1,
    hosted_queues={
        0: [_THERE, _HERE],
        1: [LogicQueueMappingItem(bname=NAME, queue_id=2)],
        2: [LogicQueueMappingItem(bname=NAME, queue_id=3), _GONE],
    },
)
_OF_POOLS = (Code.HEART_BEAT, Code.CONSUMER_SEND_MSG_BACK, Code.END_TRANSACTION, 324, 325)
_PORTS = (4711, 4712)
_HA_COMMANDS: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "master_address": lambda _asked: {},
}
"""What process `ha` answers."""


class NoNewQueues:
    """QueueRoom of a full table: the queues of `log` go on, another one is refused."""

    def __init__(self, log: Any) -> None:
        self._log = log

    def check(self, topic: str, queue_id: int) -> None:
        if queue_id not in self._log.next_offsets(topic):
            raise QueueTableFullError("full")

    take = check


class NotingRoutes(dict[int, Route]):
    """Routes of a dispatcher that note which code was looked for."""

    def __init__(self, routes: Mapping[int, Route], codes: list[int]) -> None:
        super().__init__(routes)
        self._codes = codes

    def get(self, code: int, default: Any = None) -> Any:
        self._codes.append(code)
        return super().get(code, default)


class Twin(ServedBroker):
    """One of the two, and what can be seen of it."""

    grows = True

    def __init__(self, root: Path, settings: Mapping[str, str], *, hot: bool, **kinds: Any) -> None:
        super().__init__(root, settings, hot=hot, ha_commands=_HA_COMMANDS, **kinds)
        controller = self.controller
        self.send = controller._send
        self.log = controller._store.log
        self.young = self.send.singles.young_halves
        self.halves = controller._messages.end_transaction._halves
        self.tables = controller._tables
        if self._options.controller_mode.enable_controller_mode:
            self.page.counters[CONFIRM_OFFSET] = NO_BOUND
            self.order(MemberRole.LEAD)
        elif not self._options.store.is_slave:
            controller._pop.open()
        self._slots = MetricSlotsReader(self._fds[1])
        self._decoders = [FrameDecoder() for _ in _PORTS]
        self.clients: list[ServedConnection] = [self.connect("10.1.2.3", port) for port in _PORTS]
        for config in TOPICS.values():
            self.tables.topics.update(config)
        self.tables.mappings.update(_MAPPING, force=True)

    def close(self) -> None:
        self._slots.close()
        super().close()

    def _allocate(self) -> None:
        """Process `store` makes files ahead; in small ones sends have to wait for that."""
        if self.grows and not self._options.store.is_slave:
            super()._allocate()

    def room(self) -> None:
        """What process `store` makes ahead is there."""
        if not self._options.store.is_slave:
            super()._allocate()
        self.turn()

    # -- what happens to it ----------------------------------------------------------------------

    def seed(self, number: int) -> None:
        """What is left to chance comes out the same in both."""
        random.seed(number)
        self.controller._pop.path.pop._random.seed(number)

    def pass_time(self, delta_ms: int) -> None:
        """And whoever waits is looked at."""
        self.clock.advance(delta_ms)
        self.turn()
        while self.controller._pull.hold_service.scan(self.clock.monotonic_ms()):
            pass
        self.controller._pop._scan()
        self.controller._messages.append_queue.look()
        self.turn()

    def flush(self) -> None:
        """All that was stored is on disk."""
        self.page.counters[FLUSHED_OFFSET] = self.page.counters[MAX_PHY_OFFSET]
        self.turn()

    def replicate(self) -> None:
        """All that was stored is at the replica."""
        self.page.counters[REPLICATED_OFFSET] = self.page.counters[MAX_PHY_OFFSET]
        self.turn()

    def use_replica(self, *, lives: bool) -> None:
        self.page.counters[REPLICA_COUNT] = int(lives)

    def refuse_writes(self, *, refuse: bool) -> None:
        self.page.counters[RUNNING_FLAGS] = int(refuse)

    def order(self, role: MemberRole) -> None:
        """Controller mode: process `ha` gives this broker another role, in an epoch of its own."""
        counters = self.page.counters
        counters[MASTER_EPOCH] += 1
        counters[PUTS_UNTIL_MS], counters[PUTS_REFUSED] = NO_BOUND, 0
        counters[MASTER_LINKED] = int(role is MemberRole.FOLLOW)
        for one in (MemberRole.FENCED, role):
            counters[MEMBER_ORDER] = order_after(counters[MEMBER_ORDER], one)
            self.turn()
            assert counters[ORDER_TAKEN] == counters[MEMBER_ORDER]

    def refuse_puts(self, code: int) -> None:
        """Controller mode: process `ha` has a reason."""
        self.page.counters[PUTS_REFUSED] = code

    def end_lease(self) -> None:
        """Controller mode: no controller confirms this master any longer."""
        self.page.counters[PUTS_UNTIL_MS] = 0

    def fill_queue_table(self) -> None:
        self.log._room = NoNewQueues(self.log)  # type: ignore[assignment]

    def block(self, topic: str) -> None:
        """Its queues are being deleted."""
        self.send.block_topic(topic)

    def unblock(self, topic: str, *, deleted: bool) -> None:
        self.send.unblock_topic(topic, deleted=deleted)

    def change(self, topic: str, **fields: Any) -> None:
        """A topic has other settings."""
        self.tables.topics.update(TopicConfig(**{"topic_name": topic, **fields}))

    def delete(self, topic: str) -> None:
        """Its settings; an operator may make it anew."""
        self.tables.topics.delete(topic)

    def check_transactions(self) -> None:
        """A round of TransactionalMessageCheckService, the first of this broker."""
        with mock.patch.object(
            transactional_messages, "TransactionalMessageCheckService"
        ) as service:
            messages = self.controller._messages
            messages._transactions.start(messages._calls)
        checks: TransactionalMessageService = service.call_args.args[0]
        assert checks.recover()
        checks.check()
        self.flush()
        assert checks.settle()
        self.turn()

    def settle(self) -> None:
        """The topics are there, as they were, and nothing is held back."""
        self.unblock("T", deleted=False)
        if self.tables.topics.find("T") != TOPICS["T"]:
            self.tables.topics.update(TOPICS["T"])
        self.flush()
        self.replicate()

    # -- what it did -----------------------------------------------------------------------------

    def stored(self, start: int) -> list[Message]:
        """The messages of the log from `start` on."""
        data, at, found = self.log_bytes(start), 0, []
        while at < len(data):
            if is_blank_at(data, at):
                at += self._file_size - (start + at) % self._file_size
                continue
            message, size = decode_record(data, at)
            found.append(message)
            at += size
        return found

    def room_left(self) -> int:
        """In the files of the log that process `store` has made."""
        return self.page.counters[ALLOCATED_END] - self.log.position

    def count_answers(self, code: int, *, oneway: bool = False) -> int:
        """How many requests of `code` were served, with an answer or without one."""
        self.controller._stats.publish()
        name = Code(code).name
        return sum(
            int(sum(values[:-1]))
            for labels, values in self._slots.read(RPC_LATENCY.name)
            if labels[1].upper() == name and (labels[4] == "oneway") is oneway
        )

    def answered(self) -> list[bytes]:
        """The bytes on each connection since the last call."""
        found = []
        for client in self.clients:
            found.append(bytes(client._socket.written))
            client._socket.written.clear()
        return found

    def log_bytes(self, start: int) -> bytes:
        """From `start` to the end, blanks included."""
        found, end = b"", self.page.counters[MAX_PHY_OFFSET]
        while start < end:
            view = self.controller._store.loop_reader.view_of_file(start)
            assert view is not None
            with view:
                at = start % self._file_size
                part = bytes(view[at : at + end - start])
            found += part
            start += len(part)
        return found

    def state(self) -> dict[str, object]:
        """All that it has counted and keeps, by name; nothing of it depends on its routes."""
        return {**self._stored(), **self._counted(), **self._kept(), **self._known()}

    def _stored(self) -> dict[str, object]:
        log, counters = self.log, self.page.counters
        table = self.controller._store.table
        return {
            "log position": log.position,
            "published": counters[MAX_PHY_OFFSET],
            # A delayed message that is refused for its size leaves the entry of this one topic.
            "topics of the log": sorted(log._topics.keys() - {SCHEDULE_TOPIC}),
            "next offsets": {
                name: dict(queues) for name, queues in log._next_offsets.items() if queues
            },
            "light queues": None if log.lmq is None else sorted(log.lmq._queues),
            "queues": {(t, q): table.offsets(t, q) for t, q, _row in table},
        }

    def _counted(self) -> dict[str, object]:
        hot, statistics = self.controller._stats, self.controller._statistics
        hot.publish()
        sends, pulls = hot.sends, hot.pulls
        left = (sends.normal, sends.fifo, sends.transactions, sends.delayed, pulls.found)
        assert not any(left), left
        assert (sends.messages, sends.size, sends.answered, pulls.answered) == (0, 0, 0, 0)
        assert not hot._turn_answers
        assert not hot._turn_oneways
        store = statistics.store
        found: dict[str, object] = {
            "broker stats": {
                (name, key): (item.value, item.times)
                for name, items in statistics.manager._tables.items()
                for key, item in items.items()
            },
            "broker puts": plain(statistics.manager.broker_put_nums),
            "broker gets": plain(statistics.manager.broker_get_nums),
            "puts": (store.put_times, store.put_size, store.put_failed_times),
            "gets": (store.get_found_times, store.get_miss_times, store.get_transferred),
        }
        for metric in METRICS:
            if metric.name in _TIMES:
                continue
            series = dict(self._slots.read(metric.name))
            if metric.kind is Kind.HISTOGRAM:
                # How long it took is not compared, but how often.
                series = {labels: [sum(values[:-1])] for labels, values in series.items()}
            found[metric.name] = {labels: v for labels, v in series.items() if any(v)}
        return found

    def _kept(self) -> dict[str, object]:
        controller, send = self.controller, self.send
        queue = controller._messages.append_queue
        pops = controller._pop
        self._check_young()
        half = send._placement.half_topic
        return {
            "topics of sends": {
                name: (t.entry.name, t.queues, t.write_queues, tuple(t.nature), t.multi_tags)
                for name, t in send._topics.items()
            },
            "half topic": None if half is None else half.name,
            "held": [(h.append.topic.name, h.fails_fast) for h in queue.held],
            "blocked": plain(queue.blocked),
            "waiters": [(*w[:4], w[6]) for w in controller._waiters._queue],
            "halves": [
                plain(getattr(self.halves, name))
                for name in ("_chunks", "_copies", "_ending", "_next_op", "_tail")
            ],
            "halves that wait": {
                (row.topic, row.group): row.halves
                for row in controller._stats.transactions.waiting.counts()
            },
            "new topics": len(controller._messages.new_topics._held),
            "pulls that wait": {
                key: [held.queue_offset for held in pulls]
                for key, pulls in controller._pull.hold_service._held.items()
            },
            "pops that wait": pops._waiters.is_empty,
            "check points": (pops.path.buffer.offset_count, pops.path.buffer.check_point_count),
            "in flight": dict(pops.path.inflight._counts),
        }

    def _known(self) -> dict[str, object]:
        tables = self.tables
        found: dict[str, object] = {
            type(manager).__name__: manager.encode()
            for manager in (*tables._managers, tables.schedule_offsets)
        }
        found["producers"] = {
            group: {c.remote_address: _client(info) for c, info in clients.items()}
            for group, clients in tables.producers._groups.items()
        }
        found["consumers"] = {
            group: (
                {c.remote_address: _client(m) for c, m in info.members.items()},
                plain(info.subscriptions),
                (info.consume_type, info.message_model, info.consume_from_where),
            )
            for group, info in tables.consumers._groups.items()
        }
        found["heartbeats"] = {
            c.remote_address: k.body for c, k in tables.clients.heartbeats._known.items()
        }
        return found

    def _check_young(self) -> None:
        """What is kept of halves is what is in the log of them, and of no other."""
        young = self.young
        assert young._size == sum(half.size for half in young._halves.values())
        for queue_offset, half in young._halves.items():
            view = self.controller._store.loop_reader.view_of_file(half.phy_offset)
            assert view is not None
            with view:
                message, _ = decode_record(view, half.phy_offset % self._file_size)
                body = bytes(message.body)
            assert (message.topic, message.queue_offset) == (TRANS_HALF_TOPIC, queue_offset)
            again = record_again(message, half.committed.queue_id, message.properties, 0)
            ours = half.committed
            assert (ours.flag, ours.born_timestamp, ours.born_host, ours.reconsume_times) == (
                again.flag,
                again.born_timestamp,
                again.born_host,
                again.reconsume_times,
            )
            assert (ours.body, ours.properties) == (body, message.properties)
            home = dict(_pairs(message.properties))
            assert (half.topic, str(ours.queue_id)) == (
                home[b"REAL_TOPIC"].decode(),
                home[b"REAL_QID"].decode(),
            )


_TIMES: Final = ("rocketmq_broker_loop_longest_turn_seconds",)
"""Gauges of how long something took."""


def _pairs(properties: bytes) -> list[tuple[bytes, bytes]]:
    pairs = (pair.partition(b"\x01") for pair in properties.split(b"\x02"))
    return [(name, value) for name, _, value in pairs]


def _client(info: Any) -> tuple[object, ...]:
    return (
        info.client_id,
        info.language,
        info.version,
        info.account,
        info.last_update_ms,
        info.heard_ms,
    )


def _frames(data: bytes) -> Iterator[tuple[bytes, RemotingCommand]]:
    """What a broker sent: frames whole and decoded."""
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        assert end <= len(data), "an answer announces bytes that were not sent"
        decoder = FrameDecoder()
        decoder.feed(data[at:end])
        command = decoder.next_command()
        assert command is not None
        yield data[at:end], command
        at = end


def is_of_pool(code: int) -> bool:
    """Whether a pool serves it, on the general path."""
    return code in _OF_POOLS


def _parts(asks: Sequence[Ask]) -> list[list[Ask]]:
    """Cut behind each request that a pool serves: here a pool serves it at once, and what it hands
    to the loop ends the turn. Who comes behind it in the same turn would see that."""
    parts: list[list[Ask]] = [[]]
    for ask in asks:
        parts[-1].append(ask)
        if is_of_pool(ask.code):
            parts.append([])
    return [part for part in parts if part]


def _without_opaques(data: bytes) -> list[bytes]:
    """Frames as they are; but requests of the broker without their numbers, which both take from
    one counter."""
    found = []
    for frame, command in _frames(data):
        if not command.is_response:
            command.opaque = 0
        found.append(frame if command.is_response else encode_command(command))
    return found


def _difference(one: object, other: object) -> str:
    """What two values of a state differ in."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return f"{one!r}, on the general path {other!r}"
    keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
    return "; ".join(f"{key}: {_difference(one.get(key), other.get(key))}" for key in keys)


def plain(value: Any) -> object:
    """A value of ours as dictionaries, lists and text, to be compared."""
    if value is None or isinstance(value, str | bytes | int | float):
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, Mapping):
        return {repr(key): plain(one) for key, one in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, Iterable):
        return [plain(one) for one in value]
    names = [
        name
        for kind in type(value).__mro__
        for name in getattr(kind, "__mypyc_attrs__", getattr(kind, "__slots__", ()))
    ]
    names += list(getattr(value, "__dict__", ()))
    fields = {name: getattr(value, name) for name in names if name != "__weakref__"}
    return {n: plain(one) for n, one in fields.items() if not _is_a_part(one)}


def _is_a_part(value: object) -> bool:
    """Whether it is not state, but somebody who has some."""
    return callable(value) or type(value).__name__ in ("lock", "RLock", "Event")


@dataclass(frozen=True)
class Row:
    """Circumstances: settings of both, and what happens to both before anything is asked."""

    settings: Mapping[str, str] = field(default_factory=dict)
    prepare: Callable[[Twin], object] = lambda _twin: None
    access: str = ""
    """acl: accounts of 4.9, users: users and access control lists of 5.x."""
    file_size: int = FILE_SIZE


def _make_users(twins: Twins) -> None:
    """What the accounts of 4.9 are, as users of 5.x."""
    for name, secret, resources in (
        ("membership", "member-secret", ("Topic:*", "Group:*")),
        ("application", "application-secret", ("Topic:T", "Group:G")),
    ):
        entries = [{"resource": r, "actions": ["All"], "decision": "Allow"} for r in resources]
        rights = json.dumps({"policies": [{"entries": entries}]}).encode()
        password = json.dumps({"password": secret}).encode()
        user = Ask(Code.AUTH_CREATE_USER, {"username": name}, password, signer="operator")
        acl = Ask(Code.AUTH_CREATE_ACL, {"subject": f"User:{name}"}, rights, signer="operator")
        for ask in (user, acl):
            assert [answer.code for answer in twins.ask(ask)] == [0]


def _refuse_writes(twin: Twin) -> None:
    twin.page.counters[RUNNING_FLAGS] = 1


def _run_out(twin: Twin) -> None:
    """Process `store` makes no more files."""
    twin.grows = False


def _join(twin: Twin) -> None:
    twin.page.counters[REPLICA_COUNT] = 1


MEMBER: Final = {
    "enableControllerMode": "true",
    "controllerAddr": "127.0.0.1:1",
    "namesrvAddr": "127.0.0.1:1",
    "inSyncReplicas": "1",
}
"""Settings of controller mode; the broker leads at first."""


ROWS: Final = {
    "plain": Row(),
    "light queues": Row({"enableLmq": "true", "enableMultiDispatch": "true"}),
    "no timers": Row({"timerWheelEnable": "false", "enableDetailStat": "false"}),
    "slave": Row({"brokerRole": "SLAVE", "brokerId": "1"}),
    "flush": Row({"flushDiskType": "SYNC_FLUSH"}),
    "replicas": Row({"brokerRole": "SYNC_MASTER"}, prepare=_join),
    "both": Row({"brokerRole": "SYNC_MASTER", "flushDiskType": "SYNC_FLUSH"}, prepare=_join),
    "no replica": Row({"brokerRole": "SYNC_MASTER"}),
    "accounts": Row({"aclEnable": "true"}, access="acl"),
    "users": Row(USERS_ON, access="users"),
    "full queue table": Row(prepare=Twin.fill_queue_table),
    "full disk": Row(prepare=_refuse_writes),
    "leader": Row(MEMBER),
    "follower": Row(MEMBER, prepare=lambda twin: twin.order(MemberRole.FOLLOW)),
    "fenced": Row(MEMBER, prepare=lambda twin: twin.order(MemberRole.FENCED)),
    "no lease": Row(MEMBER, prepare=Twin.end_lease),
    "puts refused": Row(MEMBER, prepare=lambda twin: twin.refuse_puts(Refused.SYSTEM_ERROR)),
    "small files": Row(prepare=_run_out, file_size=1 << 14),
}


class Twins:
    """The two. A comparison that failed leaves them different: use new ones then (KeptTwins)."""

    def __init__(self, row: Row) -> None:
        self._root = tempfile.TemporaryDirectory()
        self.pair = tuple(self._twin(row, hot=hot) for hot in (True, False))
        self.hot, self.general = self.pair
        self.signers = SIGNERS if row.access else {}
        self.differ = False
        """Whether a comparison failed."""
        self.compared = 0
        """The logs up to there are the same."""
        self.taken: list[int] = []
        """Codes of the requests that took the general path of the one with hot routes."""
        self.known = {
            "HALF_PLACE": "0",
            "HALF_OFFSET": "0",
            "PLACE": "0",
            "HANDLE": "",
            "POPPED": "0",
        }
        """What requests name of earlier answers."""
        self._halves: set[int] = set()
        """The numbers of requests that sent some."""
        self._opaque = self._steps = 0
        self._note_general()
        if row.access == "users":
            _make_users(self)
        self._warm_up()
        self.each(row.prepare)
        self.compare()
        self.taken.clear()

    def _twin(self, row: Row, *, hot: bool) -> Twin:
        root = Path(self._root.name) / ("hot" if hot else "general")
        (root / "conf").mkdir(parents=True)
        if row.access == "acl":
            (root / "conf" / "plain_acl.yml").write_text(accounts_of("T=PUB|SUB", "G=SUB"))
        settings = {"brokerName": NAME, "maxMessageSize": str(MOST_BODY), **row.settings}
        return Twin(root, settings, hot=hot, file_size=row.file_size)

    def _note_general(self) -> None:
        dispatcher = self.hot._server._dispatcher
        dispatcher._routes = NotingRoutes(dispatcher._routes, self.taken)

    def _warm_up(self) -> None:
        """The general path serves the first of each kind: topics are known then, and halves are
        kept."""
        self.ask(Ask(34, {}, heartbeat_body()))
        for properties in ("KEYS\x01k", HALF):
            self.ask(Ask(310, SEND | {"i": properties}, b"first"))
        self.ask(Ask(37, END))
        self.each(Twin.flush)
        self.answers()

    def each(self, action: Callable[[Twin], object]) -> None:
        """The same happens to both."""
        self._steps += 1
        for twin in self.pair:
            twin.seed(self._steps)
            action(twin)

    # -- requests ----------------------------------------------------------------------------------

    def ask(self, *asks: Ask, client: int = 0, cuts: Sequence[int] = ()) -> list[RemotingCommand]:
        """Requests that arrive together, in a turn; cuts: where what arrives at the one with hot
        routes is cut. What both answered."""
        frames = []
        for ask in asks:
            self._opaque += 1
            if HALF in str(ask.fields.get("i")):
                self._halves.add(self._opaque)
            frames.append(ask.frame(self._opaque, self.known, self.signers))
        return self.feed(b"".join(frames), client=client, cuts=cuts)

    def feed(
        self, data: bytes, *, client: int = 0, cuts: Sequence[int] = ()
    ) -> list[RemotingCommand]:
        """Bytes that arrive in a turn; see `ask`."""
        self._feed(data, client, cuts)
        return self.answers()

    def _feed(self, data: bytes, client: int, cuts: Sequence[int]) -> None:
        places = sorted({cut % (len(data) + 1) for cut in cuts})
        pieces = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]

        def feed(twin: Twin) -> None:
            for piece in pieces if twin is self.hot else [data]:
                twin.clients[client].feed(piece)
            twin.turn()

        self.each(feed)

    def check(self, *requests: RemotingCommand | bytes, client: int = 0) -> bytes:
        """`feed` of whole requests, and all that both have counted and keep; what both sent to
        this client."""
        frames = [one if isinstance(one, bytes) else encode_command(one) for one in requests]
        self._feed(b"".join(frames), client, ())
        answered = self._answered()
        self.compare()
        return answered[client]

    def answers(self) -> list[RemotingCommand]:
        """What came since the last call: the same on each connection, byte for byte."""
        return [command for data in self._answered() for _, command in _frames(data)]

    def _answered(self) -> list[bytes]:
        """By connection; see `answers`. All logs are compared, too."""
        with self._noting_difference():
            hot, general = (twin.answered() for twin in self.pair)
            for ours, theirs in zip(hot, general, strict=True):
                for one, other in itertools.zip_longest(*map(_without_opaques, (ours, theirs))):
                    assert one == other, f"answered {one!r}, on the general path {other!r}"
            assert self.hot.log.position == self.general.log.position
            stored = [twin.log_bytes(self.compared) for twin in self.pair]
            assert stored[0] == stored[1]
        self.compared += len(stored[0])
        for data in hot:
            for _, answer in _frames(data):
                self._learn(answer)
        return hot

    def _learn(self, answer: RemotingCommand) -> None:
        """What later requests name: the last message, half and popped message."""
        fields = answer.ext_fields
        if "msgId" in fields and not answer.code:
            place = str(int(fields["msgId"].partition(",")[0][-16:], 16))
            self.known["PLACE"] = place
            if answer.opaque in self._halves:
                self.known |= {"HALF_PLACE": place, "HALF_OFFSET": fields["queueOffset"]}
        if fields.get("startOffsetInfo") and answer.body:
            retry, _queue_id, start = fields["startOffsetInfo"].split(";")[0].split(" ")
            times = int(fields["popTime"]), int(fields["invisibleTime"])
            info = ExtraInfo(int(start), *times, int(fields["reviveQid"]), retry, NAME)
            message, _ = decode_record(answer.body, 0)
            handle = build_extra_info(info, message.queue_id, message.queue_offset)
            self.known |= {"HANDLE": handle, "POPPED": str(message.queue_offset)}

    def play(self, history: Sequence[Turn]) -> None:
        """A history that begins with all as usual. Answers and logs are compared in each turn, all
        else at the end."""
        self.settle()
        for turn in history:
            for asks in _parts(turn.asks):
                self.ask(*asks, client=turn.client, cuts=turn.cuts)
            event = _EVENTS.get(turn.event)
            if event is not None:
                self.each(event)
                self.answers()
        self.compare()

    def settle(self) -> None:
        """The topics are as at the beginning, and known to the hot routes."""
        self.each(Twin.settle)
        self.ask(*(Ask(310, SEND | {"b": topic}) for topic in ("T", "Tags")))
        self.ask(Ask(310, SEND | {"i": HALF}))

    def compare(self) -> None:
        """Everything that both have counted and keep."""
        with self._noting_difference():
            hot, general = (twin.state() for twin in self.pair)
            for name, value in hot.items():
                assert value == general[name], f"{name}: {_difference(value, general[name])}"

    @contextlib.contextmanager
    def _noting_difference(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.differ = True
            raise

    def connect(self, host: str) -> int:
        """Another client of both; its number."""
        for twin in self.pair:
            twin.clients.append(twin.connect(host, 5_000 + len(twin.clients)))
        return len(self.hot.clients) - 1

    def close(self) -> None:
        """Give everything back."""
        for twin in self.pair:
            twin.close()
        self._root.cleanup()


class KeptTwins:
    """Twins by row, kept from one test to the next: a pair costs as much as ninety requests."""

    def __init__(self) -> None:
        self._kept: dict[str, Twins] = {}

    def find(self, row: Row) -> Twins:
        """As at the beginning, but for what is stored, counted and learned."""
        twins = self.find_as_left(row)
        twins.settle()
        twins.each(Twin.settle)
        twins.answers()
        twins.compare()
        twins.taken.clear()
        return twins

    def find_as_left(self, row: Row) -> Twins:
        """As the last test left them; new ones after a difference."""
        name = repr(row)
        kept = self._kept.get(name)
        if kept is not None and kept.differ:
            self._kept.pop(name).close()
        if name not in self._kept:
            self._kept[name] = Twins(row)
        return self._kept[name]

    def close(self) -> None:
        """Give everything back."""
        for twins in self._kept.values():
            twins.close()


_EVENTS: Final[dict[str, Callable[[Twin], object]]] = {
    "flush": Twin.flush,
    "replicate": Twin.replicate,
    "time": lambda twin: twin.pass_time(30),
    "long time": lambda twin: twin.pass_time(6_000),
    "block": lambda twin: twin.block("T"),
    "unblock": lambda twin: twin.unblock("T", deleted=False),
    "deleted": lambda twin: twin.unblock("T", deleted=True),
    "changed": lambda twin: twin.change("T", read_queue_nums=2, write_queue_nums=3),
    "gone": lambda twin: twin.delete("T"),
    "back": lambda twin: twin.change("T", read_queue_nums=4, write_queue_nums=4),
    "room": Twin.room,
}
