"""A broker with transactions over HotPathWorld: one thread plays pool, loop and check service.

What the processor and the bridge hand to the loop runs at once; `turn` publishes and dispatches.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.client.broker2client import Broker2Client
from broker.client.client_channel_info import ClientChannelInfo
from broker.client.producer_manager import ProducerManager
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.store_access.store_access import StoreAccess
from broker.topic.system_topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from broker.transaction.askable_producers import AskableProducers
from broker.transaction.earlier_ends import EarlierEnds
from broker.transaction.end_transaction_processor import (
    EndTransactionParts,
    EndTransactionProcessor,
)
from broker.transaction.half_message_states import HalfMessageStates
from broker.transaction.transactional_message_bridge import BridgeParts, TransactionalMessageBridge
from broker.transaction.transactional_message_service import (
    CheckSettings,
    TransactionalMessageService,
)
from ha.control_slots import REPLICATED_OFFSET
from remoting.metrics.metric import Metric
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.commit_log import CommitLog
from store.control_slots import FLUSHED_OFFSET, MAX_PHY_OFFSET
from store.message import Message
from store.message_codec import encode_host
from store.topic_queue_table import rebuild_topic_queue_table
from tests.broker.broker_fakes import FakeConnection, request_of
from tests.broker.hot_path_world import Client, HotPathWorld, send_request

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
GROUP = "P"
TIME_OUT_MS = 6_000
CHECK_MAX = 3
RESERVED_HOURS = 72
STORE_HOST = encode_host("127.0.0.2", 20911)


@dataclasses.dataclass(frozen=True)
class Half:
    """What a producer knows of its half."""

    phy_offset: int
    queue_offset: int


class TransactionWorld:
    """See the module."""

    def __init__(
        self,
        root: Path,
        *,
        is_slave: bool = False,
        check_max: int = CHECK_MAX,
        time_out_ms: int = TIME_OUT_MS,
        append_timeout_ms: int = 50,
        **kinds: Any,
    ) -> None:
        self.root = root
        self.kinds = {"file_size": 1 << 20, "files": 2, **kinds}
        self.hot = HotPathWorld(root, **self.kinds)
        self.hot.topic()
        self.is_slave, self.check_max, self.time_out_ms = is_slave, check_max, time_out_ms
        self.append_timeout_ms = append_timeout_ms
        self.on_loop: Callable[[Callable[[], None]], None] = lambda function: function()
        self.most_ops = 20_000
        self.queued_ms = 0
        """How long a 37 waits for its pool."""
        self.later: list[tuple[int, Callable[[], None]]] = []
        """What was to run after so many ms."""
        self.flushed: int | None = None
        """Up to where the log is on disk; None: all of it."""
        self.offsets = self._offsets()
        self.producers = ProducerManager(self.hot.clock)
        self.may_end: Callable[[ConnectionLike, str, Message], bool] = lambda *_asked: True
        self.connection = FakeConnection()
        self.build()
        assert self.service.recover()

    def _offsets(self) -> ConsumerOffsetManager:
        offsets = ConsumerOffsetManager(self.root / "config" / "consumerOffset.json")
        offsets.load()
        return offsets

    def build(self) -> None:
        """What a start of the process makes."""
        hot = self.hot
        self.halves = HalfMessageStates()
        self.access = StoreAccess(
            hot.table,
            hot.source,
            hot.units,
            None,  # type: ignore[arg-type]
            lambda *place: hot.damaged.append(place),
            hot.batch_queues,
            memory_limit=1,
        )
        self.earlier = EarlierEnds(self.access, self.most_ops)
        self.processor = EndTransactionProcessor(
            EndTransactionParts(
                log=hot.writable_log,
                reader=self.access,
                halves=self.halves,
                earlier=self.earlier,
                timers=hot.timers,
                put_back_topic=hot.lost_topics.put_back,
                stats=hot.stats,
                on_loop=lambda function: self.on_loop(function),
                later=lambda ms, function: self.later.append((ms, function)),
                is_slave=lambda: self.is_slave,
            )
        )
        self.bridge = TransactionalMessageBridge(
            BridgeParts(
                commit_log=hot.writable_log.commit_log,
                append=hot.writable_log.append_queue.append,
                reader=self.access,
                halves=self.halves,
                waiting=hot.stats.transactions.waiting,
                earlier=self.earlier,
                offsets=self.offsets,
                on_loop=lambda function: self.on_loop(function),
                flushed_offset=self._flushed,
                append_timeout_ms=self.append_timeout_ms,
            )
        )
        self.service = TransactionalMessageService(
            CheckSettings(
                time_out_ms=self.time_out_ms,
                check_max=self.check_max,
                check_interval_ms=60_000,
                file_reserved_time_hours=RESERVED_HOURS,
                store_host=STORE_HOST,
                store_host_flag=0,
            ),
            self.bridge,
            self.halves,
            hot.topics,
            AskableProducers(self.producers, lambda *asked: self.may_end(*asked)),
            Broker2Client(None, None, hot.clock, max_waiting=1),  # type: ignore[arg-type]
            hot.stats.transactions,
            hot.clock,
        )

    def _flushed(self) -> int:
        return self.hot.counters[MAX_PHY_OFFSET] if self.flushed is None else self.flushed

    def restart(self, *, lost_turn: bool = False) -> None:
        """The process ends and starts: what was saved and published is there.

        lost_turn: what was not published yet is not.
        """
        hot = self.hot
        if lost_turn:
            hot.log._pending.clear()
        else:
            hot.turn()
        hot.log.close()
        hot.dispatch()
        hot.log = CommitLog(hot.directory, hot.file_size, hot.page, hot.clock, hot._ring)
        rebuild_topic_queue_table(hot.log, hot.page, hot.table, hot.loop_reader)
        hot.log.open(STORE_HOST)
        flush, replicas = self.kinds.get("waits_for_flush"), self.kinds.get("waits_for_replicas")
        os.close(hot.bell_fd)
        hot._build_processors({}, {}, bool(flush), bool(replicas))
        self.offsets = self._offsets()
        hot.stats.transactions.waiting.clear()
        self.build()
        assert self.service.recover()

    def turn(self) -> None:
        """Publish, and let the store dispatch."""
        self.hot.turn()
        self.hot.dispatch()

    # -- producers -----------------------------------------------------------------------------

    def use_producers(
        self,
        producers: ProducerManager,
        may_end: Callable[[ConnectionLike, str, Message], bool],
    ) -> None:
        """Those of another world, by another judge."""
        self.producers, self.may_end = producers, may_end
        self.build()
        assert self.service.recover()

    def connect(
        self, group: str = GROUP, client_id: str = "c", account: str = ""
    ) -> FakeConnection:
        """A producer of the group is there."""
        connection = FakeConnection()
        self.producers.register_producer(
            group,
            ClientChannelInfo(
                connection,
                client_id,
                language=0,
                version=409,
                last_update_ms=self.hot.clock.now_ms(),
                account=account,
            ),
        )
        return connection

    def prepare(
        self,
        body: bytes = b"half",
        *,
        properties: str = "",
        client: Client | None = None,
        **changes: Any,
    ) -> Half:
        """Send a half; it is published and dispatched."""
        text = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01U\x02WAIT\x01true"
        fields = {"born_timestamp": self.hot.clock.now_ms(), **changes}
        request = send_request(body, properties=text + properties, **fields)
        client = client or self.hot.client()
        assert self.hot.send_processor.process_request(client.connection, request) is None
        self.turn()
        counters = self.hot.counters
        counters[FLUSHED_OFFSET] = counters[REPLICATED_OFFSET] = counters[MAX_PHY_OFFSET]
        self.hot.turn()
        (answer,) = client.answers()
        assert answer.code in (0, ResponseCode.SLAVE_NOT_AVAILABLE), answer.remark
        return Half(
            int(answer.ext_fields["msgId"][-16:], 16), int(answer.ext_fields["queueOffset"])
        )

    def end(
        self, half: Half, decision: int, *, oneway: bool = False, **changes: Any
    ) -> RemotingCommand | None:
        """37; the answer, if one came at once."""
        request = end_request(half, decision, **changes)
        request.came_ns = self.hot.clock.monotonic_ns() - self.queued_ms * 1_000_000
        if oneway:
            request.flag |= 2
        before = len(self.connection.sent)
        answer = self.processor.process_request(self.connection, request)
        assert answer is None
        self.turn()
        answers = self.connection.sent[before:]
        return answers[0] if answers else None

    # -- rounds --------------------------------------------------------------------------------

    def round(self, advance_ms: int = 60_000) -> None:
        """Time passes, a round runs, and its progress is stored."""
        self.hot.clock.advance(advance_ms)
        self.hot.turn()
        self.service.check()
        self.turn()
        assert self.service.settle()

    # -- what is counted -----------------------------------------------------------------------

    def waiting(self) -> dict[tuple[str, str], int]:
        """Halves that wait, by topic and group."""
        waiting = self.hot.stats.transactions.waiting
        assert waiting.is_known
        return {(row.topic, row.group): row.halves for row in waiting.counts()}

    def oldest_ms(self) -> int | None:
        """How long the oldest has waited."""
        rows = self.hot.stats.transactions.waiting.counts()
        since = [row.oldest_ms for row in rows if row.oldest_ms is not None]
        return self.hot.clock.now_ms() - min(since) if since else None

    def counted(self, metric: Metric) -> dict[str, float]:
        """By the first label."""
        return {labels[0]: n for labels, n in self.hot.stats.slots.shown(metric).items() if n}

    # -- what is stored ------------------------------------------------------------------------

    def messages(self, topic: str) -> list[Message]:
        return [message for message in self.hot.records() if message.topic == topic]

    def delivered(self, topic: str = "T") -> list[bytes]:
        return [message.body for message in self.messages(topic)]

    def ops(self) -> list[int]:
        return [int(message.body) for message in self.messages(TRANS_OP_HALF_TOPIC)]

    def progress(self) -> tuple[int | None, int | None]:
        """Stored offsets of half and op queue."""
        group = "CID_RMQ_SYS_TRANS"
        return (
            self.offsets.query_offset(group, TRANS_HALF_TOPIC, 0),
            self.offsets.query_offset(group, TRANS_OP_HALF_TOPIC, 0),
        )


def end_request(half: Half, decision: int, **changes: Any) -> RemotingCommand:
    """37 as the Java client sends it, but two-way."""
    fields: dict[str, Any] = {
        "producerGroup": GROUP,
        "commitLogOffset": half.phy_offset,
        "tranStateTableOffset": half.queue_offset,
        "commitOrRollback": decision,
        "fromTransactionCheck": "false",
        "msgId": "U",
        **changes,
    }
    return request_of(Code.END_TRANSACTION, **fields)


def asked(connection: FakeConnection) -> list[Half]:
    """The halves that a producer was asked about with 39, since the last call."""
    requests, connection.sent = connection.sent, []
    assert all(r.code == Code.CHECK_TRANSACTION_STATE and r.is_oneway for r in requests)
    return [
        Half(int(r.ext_fields["commitLogOffset"]), int(r.ext_fields["tranStateTableOffset"]))
        for r in requests
    ]
