"""PullMessageProcessor: request codes 11 and 361; how messages reach consumers.

Runs on the loop thread of `remoting`. What a queue has is read by PullMessageReader, whose views of
the mapped commit log are lent to the connection: no message is copied or joined here. What finds
nothing may wait in PullRequestHoldService, as does what comes to a damaged unit, until the queue is
rebuilt. Checks, statuses and codes are those of RocketMQ's PullMessageProcessor.
"""

from __future__ import annotations

from typing import Final

import msgspec

from broker.filter.tags_ahead import TagsAhead
from broker.longpolling.pull_header import (
    FLAG_COMMIT_OFFSET,
    FLAG_SUSPEND,
    HeldPull,
    PullFrame,
    PullHeader,
    PullRequest,
    Wanted,
)
from broker.longpolling.pull_request_hold_service import PullRequestHoldService
from broker.offset.broadcast_offset_manager import BroadcastClient
from broker.processor.held_rights import CheckRights
from broker.pull.known_pulls import KnownPulls
from broker.pull.pull_answer import (
    answer_head,
    place_of,
    pull_header_of,
    pull_template,
    refuse,
)
from broker.pull.pull_message_reader import PullMessageReader
from broker.pull.pull_parts import PullParts
from broker.pull.pull_read import PullRead, read_outside
from broker.pull.pull_settings import PullSettings
from broker.pull.pull_start import PullStart
from broker.pull.pull_subscription import PullSubscriptions, forbidden
from broker.pull.unit_chooser import QueuePlace
from broker.store_access.pages_ahead import PagesAhead, PagesMissingError
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.connection import Connection
from remoting.errors import RequestError
from remoting.headers.pull_message import ForbiddenType
from remoting.logic_queue import LogicPull
from remoting.remoting_command import RemotingCommand, SerializeType
from remoting.request_dispatcher import refusal_of
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from remoting.rocketmq_serializable import find_plain_header
from remoting.shared_decoders import learnt
from store.get_message_status import find_outside

PULL_PREFIX: Final = b'{"code":11,'
LITE_PULL_PREFIX: Final = b'{"code":361,'
"""What 5.x clients send for a lite pull; served alike."""
_PERM_READ: Final = 4

_LONGEST_HOLD_MS: Final = 3_600_000
"""RocketMQ's clients ask for 20 s; without a limit a peer could have each pull noted for good."""

_decode_frame: Final = msgspec.json.Decoder(PullFrame, strict=False).decode
_HEADER: Final = learnt(PullHeader)


class PullMessageProcessor:
    """Answers pulls. Owned by: the remoting loop thread."""

    def __init__(self, settings: PullSettings, parts: PullParts) -> None:
        units, cold = parts.units, parts.cold
        self._hold_rights = parts.hold_rights
        self._start = parts.start
        self._static_topics = parts.static_topics
        self._cold = cold
        self._compaction = parts.compaction
        self._batch = parts.batch
        self._pages = parts.pages
        self._settings = settings
        self._table = parts.table
        self._find_topic = parts.find_topic
        self._find_group = parts.find_group
        self._commit_offset = parts.commit_offset
        self._stats = parts.stats
        self._monotonic_ms = parts.monotonic_ms
        self._note_moved = parts.note_moved
        self._note_pull = parts.note_pull
        self._reader = PullMessageReader(
            parts.page, units, parts.log_reader, parts.monotonic_ms, cold
        )
        self._tags_ahead = TagsAhead(
            lambda topic, queue_id, offset, count: units.read_filtered(
                topic, queue_id, offset, count, codes=None, limit=0
            )
        )
        self._subscriptions = PullSubscriptions(
            parts.consumers,
            parts.filters,
            parts.is_readable,
            enable_property_filter=settings.enable_property_filter,
            filter_support_retry=settings.filter_support_retry,
        )
        self._known = KnownPulls(settings, parts, self._check_all, self._reader)
        self._may_know = parts.start is None or not parts.start.tells_resets
        """Not where every pull has to be asked whether it begins elsewhere."""
        self.hold_service = PullRequestHoldService(self._run_again)
        if cold is not None:
            cold.serve_with(lambda pull: self._run_again(pull, True))

    def use(self, settings: PullSettings, *, tells_resets: bool = False) -> None:
        """Apply changed settings. tells_resets: useServerSideResetOffset."""
        self._settings = settings
        if self._start is not None:
            self._start.tells_resets = tells_resets
        self._may_know = not tells_resets
        self._known.use(settings)

    # -- entries -------------------------------------------------------------------------------

    def process_fast(self, connection: Connection, header: bytes, _body: memoryview) -> bool:
        """FastHandler for JSON frames of code 11; False hands the frame to `process_request`."""
        try:
            frame = _decode_frame(header)
        except (msgspec.DecodeError, UnicodeError):
            return False
        if frame.flag:
            return False
        return self._serve(
            connection, frame.code, frame.opaque, frame.extFields, SerializeType.JSON
        )

    def process_binary(self, connection: Connection, header: bytes, _body: memoryview) -> bool:
        """FastHandler for frames of codes 11 and 361 with a binary header, as `process_fast`."""
        read = find_plain_header(header)
        if read is None or read.flag:
            return False
        try:
            header_fields = msgspec.convert(read.ext_fields, _HEADER, strict=False)
        except msgspec.ValidationError:
            return False
        return self._serve(
            connection, read.code, read.opaque, header_fields, SerializeType.ROCKETMQ
        )

    def _serve(
        self,
        connection: Connection,
        code: int,
        opaque: int,
        header: PullHeader,
        serialize_type: SerializeType,
    ) -> bool:
        """Answer a pull of the fast routes, now or later; False: its topic is a static one, or it
        is for a lite topic."""
        if header.liteTopic or (self._static_topics and header.topic in self._static_topics):
            return False
        template = pull_template(serialize_type)
        if self._known.answer(connection, header, code, opaque, template):
            return True
        request = PullRequest(connection, opaque, serialize_type, code, header)
        try:
            self._pull(request)
        except RequestError as error:
            self._stats.add_answers(code, error.code)
            refuse(request, error)
        return True

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        """Every form of a pull."""
        assert isinstance(connection, Connection)
        if request.is_oneway:
            return None
        self.pull(connection, request, pull_header_of(request))
        return None

    def pull(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PullHeader,
        mapped: LogicPull | None = None,
    ) -> None:
        """Answer a pull, now or later. mapped: of a static topic, whose place `header` names.
        Raises RequestError."""
        self._pull(
            PullRequest(
                connection, request.opaque, request.serialize_type, request.code, header, mapped
            )
        )

    # -- one pull ------------------------------------------------------------------------------

    def _pull(self, request: PullRequest, since_ms: int | None = None) -> None:
        """since_ms: when a pull came whose records were brought into memory meanwhile."""
        connection, header = request.connection, request.header
        group = self._check(connection, header)
        wanted = self._subscriptions.wanted(header, group)
        if (
            (cold := self._cold) is not None
            and cold.enabled
            and cold.holds(request, wanted, lambda: self._rights_of(request))
        ):
            self._commit(connection, header)
            return
        start = self._start
        client = None if start is None else start.broadcast_client(connection, header)
        if start is not None and self._tell_start(start, request, group, client):
            self._stats.add_answers(request.code, ResponseCode.PULL_OFFSET_MOVED)
            return
        pages = self._pages if since_ms is None else None
        try:
            read = self._read(header, header.queueOffset, wanted, pages)
        except PagesMissingError as missing:
            self._wait_for_pages(request, missing.units)
            return
        if start is not None and client is not None:
            is_moved = read.code == ResponseCode.PULL_OFFSET_MOVED
            start.note(header, client, read.next_offset if is_moved else header.queueOffset)
        self._commit(connection, header)
        if (
            read.code == ResponseCode.PULL_NOT_FOUND
            and header.sysFlag & FLAG_SUSPEND
            and (request.mapped is None or request.mapped.waits(header.queueOffset, place_of(read)))
        ):
            now_ms = self._monotonic_ms()
            held = HeldPull(
                request=request,
                wanted=wanted,
                queue_offset=header.queueOffset,
                since_ms=now_ms,
                deadline_ms=now_ms + self._hold_ms(header),
                check_rights=self._rights_of(request),
            )
            if self.hold_service.hold((header.topic, header.queueId), held):
                group_name, topic, queue_id = header.consumerGroup, header.topic, header.queueId
                self._note_pull(group_name, topic, queue_id, read.next_offset)
                return
        if since_ms is None:
            self._stats.add_answers(request.code, read.code)
        else:
            held_ms = self._monotonic_ms() - since_ms
            self._stats.add_late_answer(request.code, read.code, held_ms)
        self._answer(request, read, group)
        if read.more_at_hand and self._may_know and request.is_plain:
            self._known.note(connection, header)

    def _wait_for_pages(self, request: PullRequest, units: bytes) -> None:
        """The pull goes on when the records are in memory; then it waits for nothing more."""
        since_ms = self._monotonic_ms()
        check_rights = self._rights_of(request)

        def go_on() -> None:
            if not request.connection.is_open:
                return
            try:
                if check_rights is not None:
                    check_rights()
                self._pull(request, since_ms)
            except Exception as error:  # noqa: BLE001 - the request guard, for what waited
                refusal = refusal_of(request.connection, request.code, error)
                self._stats.add_answers(request.code, refusal.code)
                refuse(request, refusal)

        assert self._pages is not None
        self._pages.bring(units, go_on)

    def _rights_of(self, request: PullRequest) -> CheckRights | None:
        """Of a pull that waits now."""
        header = request.header
        names = header.consumerGroup, header.checked_topic
        return self._hold_rights(request.connection, request.code, header.AccessKey, *names)

    def _commit(self, connection: Connection, header: PullHeader) -> None:
        if header.sysFlag & FLAG_COMMIT_OFFSET and self._settings.commits_offsets:
            place = header.consumerGroup, header.topic, header.queueId
            self._commit_offset(connection.remote_address, *place, header.commitOffset)

    def _tell_start(
        self,
        start: PullStart,
        request: PullRequest,
        group: SubscriptionGroupConfig,
        client: BroadcastClient | None,
    ) -> bool:
        """Answer a pull that has to go on at another offset; False if it has not. What it would
        commit is out of date."""
        if client is None and not start.tells_resets:
            return False
        header = request.header
        moved = start.moved(header, client)
        if moved is None:
            return False
        low = high = 0
        if moved.shows_bounds:
            low, high = self._table.offsets(header.topic, header.queueId)
        code = ResponseCode.PULL_OFFSET_MOVED
        self._answer(request, PullRead(code, b"OFFSET_RESET", moved.offset, low, high), group)
        return True

    def _hold_ms(self, header: PullHeader) -> int:
        if self._settings.long_polling_enable:
            return min(max(header.suspendTimeoutMillis, 0), _LONGEST_HOLD_MS)
        return self._settings.short_polling_time_ms

    def _run_again(self, pull: HeldPull, time_is_up: bool) -> bool:
        try:
            return self._look_again(pull, time_is_up)
        except Exception as error:  # noqa: BLE001 - the request guard, for what waited
            refusal = refusal_of(pull.request.connection, pull.request.code, error)
            self._count_late(pull, refusal.code)
            refuse(pull.request, refusal)
            return True

    def _look_again(self, pull: HeldPull, time_is_up: bool) -> bool:
        """Whether a held pull was answered. Raises RequestError."""
        if not time_is_up and self._passes_over(pull):
            return False
        request = pull.request
        header = request.header
        if pull.check_rights is not None:
            pull.check_rights()
        group = self._check(request.connection, header)
        if pull.wanted[1] is not None:
            # The consumer does not filter again: a newer expression counts at once.
            pull.wanted = self._subscriptions.wanted(header, group)
        start = self._start
        client = None if start is None else start.broadcast_client(request.connection, header)
        if start is not None and self._tell_start(start, request, group, client):
            self._count_late(pull, ResponseCode.PULL_OFFSET_MOVED)
            return True
        read = self._read(header, pull.queue_offset, pull.wanted)
        if not time_is_up:
            if read.code == ResponseCode.PULL_NOT_FOUND:
                return False
            # One that did not look to the end is answered: nothing would wake it for the rest.
            if (
                read.code == ResponseCode.PULL_RETRY_IMMEDIATELY
                and read.next_offset >= read.max_offset
            ):
                pull.queue_offset = read.next_offset
                return False
        self._count_late(pull, read.code)
        self._answer(request, read, group)
        return True

    def _passes_over(self, pull: HeldPull) -> bool:
        """Whether none of what came has a tag that `pull` wants; it then stands at the queue's end.
        Most held pulls with tags: 1.2 us instead of the 30 us of a look at the queue."""
        codes, properties = pull.wanted
        if codes is None or properties is not None:
            return False
        topic, queue_id = pull.request.header.topic, pull.request.header.queueId
        if self._compaction is not None and self._compaction.serves(topic):
            return False
        low, high = self._table.offsets(topic, queue_id)
        if not low <= pull.queue_offset < high or (self._batch and self._batch.serves(topic)):
            return False
        generation = self._table.generation_of(topic, queue_id)
        if not self._tags_ahead.none_of(
            codes, topic, queue_id, pull.queue_offset, high, generation
        ):
            return False
        pull.queue_offset = high
        return True

    def _count_late(self, pull: HeldPull, code: int) -> None:
        held_ms = self._monotonic_ms() - pull.since_ms
        self._stats.add_late_answer(pull.request.code, code, held_ms)

    # -- checks (in RocketMQ's order) -----------------------------------------------------------

    def _check_all(self, connection: Connection, header: PullHeader) -> Wanted:
        return self._subscriptions.wanted(header, self._check(connection, header))

    def _check(self, connection: Connection, header: PullHeader) -> SubscriptionGroupConfig:
        if not self._settings.readable:
            raise forbidden(
                ForbiddenType.BROKER_FORBIDDEN, "the broker's pulling message is forbidden"
            )
        group = self._find_group(header.consumerGroup)
        if group is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumerGroup}] does not exist",
            )
        if not group.consume_enable:
            raise forbidden(
                ForbiddenType.GROUP_FORBIDDEN,
                f"subscription group no permission, {header.consumerGroup}",
            )
        name = header.checked_topic
        topic = self._find_topic(name)
        if topic is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{name}] not exist, apply first please!",
            )
        if not topic.perm & _PERM_READ:
            raise forbidden(
                ForbiddenType.TOPIC_FORBIDDEN,
                f"the topic[{name}] pulling message is forbidden",
            )
        if not 0 <= header.queueId < topic.read_queue_nums:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queueId}] is illegal, topic:[{name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] "
                f"consumer:[{connection.remote_address}]",
            )
        return group

    # -- reading -------------------------------------------------------------------------------

    def _read(
        self,
        header: PullHeader,
        queue_offset: int,
        wanted: Wanted,
        pages: PagesAhead | None = None,
    ) -> PullRead:
        """Raises PagesMissingError if `pages` finds that records are not in memory."""
        compaction = self._compaction
        if compaction is not None and compaction.serves(header.topic):
            return compaction.read(header, queue_offset, wanted, self._settings)
        low, high = self._table.offsets(header.topic, header.queueId)
        if (batch := self._batch) is not None and batch.serves(header.topic):
            if low <= queue_offset < high:
                return batch.read(header, queue_offset, wanted, self._settings, (low, high))
            low = low if high else -1
        if low <= queue_offset < high:
            place = QueuePlace(header.topic, header.queueId, queue_offset, low, high)
            return self._reader.read(header, place, wanted, self._settings, pages)
        outside = find_outside(low, high, queue_offset)
        assert outside is not None
        return read_outside(outside, queue_offset, low, high, self._settings)

    # -- answering -----------------------------------------------------------------------------

    def _answer(self, request: PullRequest, read: PullRead, group: SubscriptionGroupConfig) -> None:
        header = request.header
        if read.code == ResponseCode.PULL_OFFSET_MOVED and request.mapped is None:
            self._note_moved(
                header.consumerGroup,
                header.topic,
                header.queueId,
                header.queueOffset,
                read.next_offset,
            )
        suggested = 0
        if self._settings.slave_read_enable:
            suggested = group.which_broker_when_consume_slowly if read.slow else group.broker_id
        self._stats.add_get(header.consumerGroup, header.topic, read.count, read.size)
        self._note_pull(header.consumerGroup, header.topic, header.queueId, read.next_offset)
        head = answer_head(request, read, suggested)
        request.connection.write_many([head, *read.pieces], len(head) + read.size)
