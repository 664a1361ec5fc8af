"""SendMessageProcessor: request codes 10, 310 and 320; how every message gets into the log.

Runs on the loop thread of `remoting`, the log's only writer. Most sends take a fast path, straight
from the receive buffer, with JSON and binary headers (SendRoute, BatchSendRoute); every other form
and every refusal is here. Records get their place immediately; at the end of the loop's turn the
log publishes them, and the responses are sent or wait for the flush and the replicas
(DurabilityWaiters). SendRecords builds the records. Checks, their order, codes and texts follow
RocketMQ's SendMessageProcessor.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

from broker.append.admitted_properties import admitted_properties
from broker.append.diverted_messages import home_of
from broker.append.durability_waiters import Answer
from broker.append.send_properties import asks_to_wait, find_unique_key
from broker.append.writable_log import WritableLog
from broker.metrics.path_stats import PathStats
from broker.send.batch_send_route import BatchSendRoute
from broker.send.hot_sends import HotSends
from broker.send.mapped_send import MappedSend, map_send
from broker.send.placement import Placement
from broker.send.rules import BATCH_GROWTH, Circumstances, SendRules, check_body, check_text
from broker.send.send_answers import SendAnswers
from broker.send.send_header import SendHeader, send_header_of
from broker.send.send_records import SendRecords, StoredSend
from broker.send.send_route import SendRoute
from broker.send.send_settings import SendSettings
from broker.send.send_topic import SendTopic
from broker.timer.recall_message_handle import recall_handle_field
from broker.timer.timer_hook import TimerHook
from broker.topic.new_topics import NewTopics
from broker.topic.system_topics import RETRY_GROUP_TOPIC_PREFIX, TIMER_TOPIC
from broker.topic.table_protocols import FindGroup
from broker.topic.topic_config_manager import TopicConfigManager
from remoting.body.topic_queue_mapping import TopicQueueMappingDetail
from remoting.connection import Connection
from remoting.errors import RequestError
from remoting.headers.durability import asks_for_durability
from remoting.remoting_command import RemotingCommand
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.commit_log import TopicLog
from store.errors import StoreError
from store.record import Record

log = logging.getLogger(__name__)

_COMMIT_WAITING: Final = 128
"""When so many sends wait for replicas, they are published before the end of the turn: the replicas
receive them while the next ones are read. Each time wakes process ha, the slave and ha again: with
32 a message of 4 x 64 cost 27 us of all processes together, with 64 25, with 128 22."""
_COMMIT_BYTES: Final = 256 << 10
"""The same when they have so many bytes: large ones take a replica longer to receive."""


@dataclass(slots=True)
class _SendAppend:
    """The records of one send on their way into the log: Append."""

    processor: SendMessageProcessor
    connection: Connection
    request: RemotingCommand
    header: SendHeader
    stored: StoredSend
    came_ns: int = 0
    """When it began to wait for its topic or for the next file; 0: it arrived in this turn and
    has not waited."""
    mapped: MappedSend | None = None

    @property
    def topic(self) -> TopicLog:
        """See Append."""
        return self.stored.topic

    @property
    def records(self) -> list[Record]:
        """See Append."""
        return self.stored.records

    def placed(self, places: list[tuple[int, int]]) -> None:
        """See Append."""
        self.processor.on_placed(self, places)

    def refused(self, code: ResponseCode, remark: str) -> None:
        """See Append."""
        self.processor.on_refused(self, code, remark)


class SendMessageProcessor:
    """Puts messages into the log and answers their senders. Owned by: the remoting loop thread."""

    def __init__(
        self,
        settings: SendSettings,
        log: WritableLog,
        topics: TopicConfigManager,
        find_group: FindGroup,
        stats: PathStats,
        new_topics: NewTopics,
        timers: TimerHook,
        mappings: Mapping[str, TopicQueueMappingDetail] = MappingProxyType({}),
    ) -> None:
        """mappings: of static topics."""
        self._mappings = mappings
        self._settings = settings
        commit_log, append_queue, waiters = log.commit_log, log.append_queue, log.waiters
        self._log = commit_log
        self._append_queue = append_queue
        self._durability = log.durability
        self._held = append_queue.held
        self._topics_config = topics
        self.rules: Final = SendRules(
            Circumstances(commit_log.lmq, timers, settings.max_delay_level)
        )
        self._cluster_pair = f"CLUSTER\x01{settings.cluster_name}"
        self._placement = Placement(
            commit_log,
            topics,
            timers,
            stats.sends,
            cluster_pair=self._cluster_pair,
            max_delay_level=settings.max_delay_level,
            reject_transactions=settings.reject_transactions,
            left_flags_of_halves=self.rules.left_flags_of_halves,
        )
        self._records = SendRecords(
            commit_log,
            find_group,
            self.rules,
            self._placement,
            cluster_pair=self._cluster_pair,
            batch_limit=BATCH_GROWTH * settings.max_message_size,
            lmq_quota=settings.lmq_quota,
        )
        self._waiters = waiters
        self._stats = stats
        self._new_topics = new_topics
        self._topics: dict[str, SendTopic] = {}
        self._waiting_puts, self._waiting_from = 0, commit_log.position
        """Sends of this turn that wait and are not yet published, and where the first one is."""
        self._host_hex = commit_log.store_host.hex().upper()
        self._answers = SendAnswers(self._region(), self._host_hex.encode() + b"%016X")
        hot = HotSends(
            commit_log=commit_log,
            topics=self._topics,
            is_open=append_queue.is_open,
            waiters=waiters,
            stats=stats,
            note_waiting=self._note_waiting,
            rules=self.rules,
            cluster_pair=self._cluster_pair,
            max_message_size=settings.max_message_size,
        )
        self.batches: Final = BatchSendRoute(hot, SendAnswers(self._region(), b"%b"))
        """The fast path of batches."""
        self.singles: Final = SendRoute(hot, self.batches, self._placement, self._answers)
        """The fast path of all others."""

    # -- entries -------------------------------------------------------------------------------

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        """Any form of a send. The response has the send headers, even for an error."""
        assert isinstance(connection, Connection)
        return self._serve(connection, request, 0)

    def on_topics_changed(self) -> None:
        """Discard everything derived from topic configurations; loop thread."""
        self._topics.clear()
        self._placement.half_topic = None

    def block_topic(self, topic: str) -> int:
        """Reject sends to `topic` while its queues are deleted; returns the log's end. Loop
        thread."""
        self._topics.pop(topic, None)
        self._append_queue.block_topic(topic, ResponseCode.TOPIC_NOT_EXIST, _being_deleted(topic))
        self._log.commit()
        return self._log.position

    def unblock_topic(self, topic: str, *, deleted: bool) -> None:
        """Accept sends to `topic` again; its queues start at 0 if they were deleted."""
        if deleted:
            self._log.forget_topic(topic)
        self._append_queue.unblock_topic(topic)

    @property
    def holds_sends(self) -> bool:
        """Whether any send waits for the next file."""
        return bool(self._held)

    def turn_end(self) -> None:
        """End of the loop's turn, before responses are sent: retry held sends, publish."""
        if self._held:
            self._append_queue.retry()
        self._log.commit()
        self._waiting_puts, self._waiting_from = 0, self._log.position

    def _note_waiting(self) -> None:
        """A send of this turn waits: publish it with those before it when they are many."""
        self._waiting_puts += 1
        if not self._waiters.waits_for_replicas:
            return
        size = self._log.position - self._waiting_from
        if self._waiting_puts >= _COMMIT_WAITING or size >= _COMMIT_BYTES:
            self._log.commit()
            self._waiting_puts, self._waiting_from = 0, self._log.position

    # -- the general path ----------------------------------------------------------------------

    def _serve(
        self, connection: Connection, request: RemotingCommand, came_ns: int
    ) -> RemotingCommand | None:
        """came_ns: when it arrived, if it has waited for its topic; otherwise 0."""
        try:
            header = send_header_of(request)
            check_text(header.i, is_batch=header.is_batch)
            header.i = self._admitted(header)
            mapped = map_send(self._mappings, header, request.ext_fields)
            topic = self._check(connection, request, header)
            stored = self._records.of(request, header, topic, connection, mapped)
            topics = (header.b, stored.topic.name)
            if self._new_topics.busy and self._hold(connection, request, topics, came_ns):
                return None
        except RequestError as error:
            return request.response(error.code, error.remark, self._region())
        except StoreError as error:
            return request.response(ResponseCode.MESSAGE_ILLEGAL, str(error), self._region())
        if not (
            header.b.startswith(RETRY_GROUP_TOPIC_PREFIX)
            or header.b in self._mappings
            or self.rules.leaves_topic(topic.nature)
        ):
            # These do not take the fast path, which checks no groups, and maps no queues.
            self._topics[header.b] = topic
        if stored.message_type == "transaction":
            self._placement.half_topic = stored.topic
        append = _SendAppend(self, connection, request, header, stored, came_ns, mapped)
        self._append_queue.append(append, fails_fast=True)
        if self._held and not came_ns:
            append.came_ns = self._stats.now_ns()
        return None

    def _admitted(self, header: SendHeader) -> str:
        may_recall = self._settings.recall_by_property and not header.is_batch
        return admitted_properties(header.i, recall_of=header.b if may_recall else None)

    def _hold(
        self,
        connection: Connection,
        request: RemotingCommand,
        topics: tuple[str, ...],
        came_ns: int,
    ) -> bool:
        """Whether the send waits until the name servers know its topics; it is then processed from
        the beginning.

        Raises RequestError when too many are waiting.
        """
        since_ns = came_ns or self._stats.now_ns()
        return self._new_topics.hold(topics, lambda: self._resume(connection, request, since_ns))

    def _resume(self, connection: Connection, request: RemotingCommand, came_ns: int) -> None:
        response = self._serve(connection, request, came_ns)
        if response is None:
            return
        if not request.is_oneway:
            connection.send_command(response)
        self._stats.add_timed_answer(request.code, response.code, came_ns, oneway=request.is_oneway)

    def _check(
        self, connection: Connection, request: RemotingCommand, header: SendHeader
    ) -> SendTopic:
        """The checks of RocketMQ's AbstractSendMessageProcessor.msgCheck, in its order."""
        accepts_from_ms = self._settings.start_accept_send_request_timestamp_ms
        if self._log.now_ms < accepts_from_ms:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {accepts_from_ms}"
            )
        queue = self._append_queue
        if (refusal := queue.blocked.get(header.b) or queue.role_refusal) is not None:
            raise RequestError(*refusal)  # Before it makes a topic.
        topic = self._topics.get(header.b)
        if topic is None:
            config = self._topics_config.prepare_for_send(
                header.b,
                header.c,
                header.d,
                unit_mode=header.unit_mode,
                remote=connection.remote_address,
            )
            topic = SendTopic(config, self._log.topic(header.b))
        if int(header.e) >= topic.queues:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"request queueId[{header.e}] is illegal, topic {header.b} has "
                f"{topic.queues} queues, producer {connection.remote_address}",
            )
        self._check_store(header.b)
        check_body(len(request.body), self._settings.max_message_size)
        return topic

    def _check_store(self, topic: str) -> None:
        if self._settings.is_slave:
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE, "this broker is a slave: send to its master"
            )
        if (refusal := self._append_queue.find_refusal(topic)) is not None:
            self._stats.add_put_failed()
            raise RequestError(*refusal)

    def on_placed(self, send: _SendAppend, places: list[tuple[int, int]]) -> None:
        """A send's records have been placed: count it, answer now or once they are safe."""
        size = self._log.position - places[0][0]
        stored = send.stored
        self._stats.add_put(stored.topic.name, stored.messages, size, stored.message_type)
        if stored.message_type == "delay":
            self._stats.add_queue_put(stored.topic.name, stored.records[0].queue_id, size)
        elif stored.message_type == "transaction":
            half = stored.records[0].properties
            topic, _queue_id = home_of(half) or (send.header.b, 0)
            self._stats.transactions.stored(places[0][1], topic, half, self._log.now_ms)
        if send.request.is_oneway:
            self._count_answer(send, ResponseCode.SUCCESS)
        else:
            self._answer_placed(send, places)

    def on_refused(self, send: _SendAppend, code: ResponseCode, remark: str) -> None:
        """Nothing of a send was stored."""
        if code is ResponseCode.SERVICE_NOT_AVAILABLE:
            self._stats.add_put_failed()
        if not send.request.is_oneway:
            send.connection.send_command(send.request.response(code, remark, self._region()))
        self._count_answer(send, code)

    def _answer_placed(self, send: _SendAppend, places: list[tuple[int, int]]) -> None:
        request = send.request
        ids = ",".join(self._message_id(phy_offset) for phy_offset, _ in places)
        queue_id, queue_offset = send.stored.queue_id, places[0][1]
        if send.mapped is not None:
            queue_id, queue_offset = send.mapped.place(queue_offset)
        key = find_unique_key(send.header.i)
        fields = self._answers.fields(queue_id, ids, queue_offset, key) | send.stored.batch_fields
        if key and send.stored.topic.name == TIMER_TOPIC:
            record, name = send.stored.records[0], self._settings.broker_name
            fields |= recall_handle_field(send.header.b, name, record.properties)
        response = request.response(ResponseCode.SUCCESS, None, fields)
        answer: Answer = partial(_answer, send.connection, response)
        if asks_for_durability(request.ext_fields):
            end = self._log.position
            answer = partial(self._answer_with_durability, send.connection, response, end)
        waits = self._waiters.active and asks_to_wait(send.header.i)
        if self._waiters.is_safe_mode and send.header.b.startswith(RETRY_GROUP_TOPIC_PREFIX):
            # A consumer whose 36 has failed: WAIT=false is of the broker that made the message's
            # last copy, and Java's takes whatever else is no error for success.
            waits, answer = True, partial(_answer_safe_or_failed, answer)
        if not waits:
            answer(ResponseCode.SUCCESS)
            self._count_answer(send, ResponseCode.SUCCESS)
        elif send.came_ns:
            late = partial(self._answer_late, answer, request.code, send.came_ns)
            self._waiters.add(self._log.position, late, None)
        else:
            self._waiters.add(self._log.position, answer, request.code)

    def _answer_with_durability(
        self,
        connection: Connection,
        response: RemotingCommand,
        end_offset: int,
        code: ResponseCode,
    ) -> None:
        response.ext_fields.update(self._durability.fields(end_offset))
        _answer(connection, response, code)

    def _answer_late(
        self, answer: Answer, request_code: int, came_ns: int, code: ResponseCode
    ) -> None:
        """A send that waited before it was placed: counted with its whole waiting time."""
        answer(code)
        self._stats.add_timed_answer(request_code, code, came_ns)

    def _count_answer(self, send: _SendAppend, code: ResponseCode) -> None:
        request = send.request
        if send.came_ns:
            self._stats.add_timed_answer(request.code, code, send.came_ns, oneway=request.is_oneway)
        elif request.is_oneway:
            self._stats.add_oneway(request.code, code)
        else:
            self._stats.add_answers(request.code, code)

    # -- answers -------------------------------------------------------------------------------

    def _message_id(self, phy_offset: int) -> str:
        return f"{self._host_hex}{phy_offset:016X}"

    def _region(self) -> dict[str, str]:
        trace = "true" if self._settings.trace_on else "false"
        return {"TRACE_ON": trace, "MSG_REGION": self._settings.region_id}


def _answer(connection: Connection, response: RemotingCommand, code: ResponseCode) -> None:
    response.code = int(code)
    connection.send_command(response)


def _answer_safe_or_failed(answer: Answer, code: ResponseCode) -> None:
    answer(code if code is ResponseCode.SUCCESS else ResponseCode.SYSTEM_ERROR)


def _being_deleted(topic: str) -> str:
    return f"topic[{topic}] is being deleted"
