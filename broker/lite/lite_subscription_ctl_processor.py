"""LiteSubscriptionCtlProcessor: request code 200071; clients subscribe lite topics, one by one.

The body is read in the pool of heartbeats, what it says happens on the loop thread of `remoting`,
in slices: a client may name very many lite topics. The first error ends the request; what came
before it stays, as in RocketMQ. Codes and words follow LiteSubscriptionCtlProcessor of RocketMQ
5.5; what only its proxy checks (that the group is bound to the topic, the names) is checked here,
too. A slave agrees and notes nothing: clients repeat what they have to a new master, and one whose
master is away does not refuse them what other masters have. A master registers what it is asked to,
whether or not senders choose it: the number of a topic's queues may change.

Tested by tests/broker/lite/test_lite_subscription_ctl_processor.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from broker.lite.lite_event_dispatcher import LiteEventDispatcher
from broker.lite.lite_metadata_util import LiteGroup, find_lite_group
from broker.lite.lite_queues import LiteQueues
from broker.lite.lite_subscription import LiteSubscription
from broker.lite.lite_subscription_registry import LiteSubscriptionRegistry
from broker.pop.pop_stats import PopStats
from broker.processor.table_processor import TableProcessor
from broker.topic.table_protocols import FindGroup
from remoting.body.lite import (
    LiteSubscriptionAction,
    LiteSubscriptionCtlRequestBody,
    LiteSubscriptionDTO,
    OffsetOption,
    OffsetOptionType,
)
from remoting.command_custom_header import encode_header
from remoting.errors import RequestError
from remoting.headers.lite import NotifyUnsubscribeLiteRequestHeader
from remoting.lite_names import (
    LITE_NAME_RULE,
    MOST_LITE_NAME,
    is_lite_name,
    parse_lite_queue,
    to_lmq_name,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_dispatcher import refusal_of
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.lmq_places import is_lmq_name

log = logging.getLogger(__name__)

SLICE: Final = 1_000
"""Lite topics of one turn of the loop."""
_MOST_NAMED: Final = 100_000
"""Lite topics of one request, unless maxLiteSubscriptionCount is more."""
_MIN: Final = 1
_MAX: Final = 2
_JAVA: Final = "java.lang.IllegalStateException: "
_Named = tuple[LiteSubscriptionDTO, dict[str, None]]
"""A change, and the light queues of its lite topics."""
_ADDS: Final = (LiteSubscriptionAction.PARTIAL_ADD, LiteSubscriptionAction.COMPLETE_ADD)


@dataclass(frozen=True, slots=True, kw_only=True)
class CtlParts:
    """The collaborators of this processor."""

    registry: LiteSubscriptionRegistry
    dispatcher: LiteEventDispatcher
    queues: LiteQueues
    find_group: FindGroup
    """Of known groups; makes none."""
    leads: Callable[[], bool]
    """Whether this broker hands messages out."""
    stats: PopStats
    monotonic_ms: Callable[[], int]
    on_loop: Callable[[Callable[[], None]], None]
    """Runs a function on the loop's thread, in a later turn."""


class LiteSubscriptionCtlProcessor(TableProcessor):
    """Owned by: the loop thread; `_serve` runs in a pool and owns nothing."""

    def __init__(self, parts: CtlParts) -> None:
        super().__init__({RequestCode.LITE_SUBSCRIPTION_CTL: self._serve})
        self._parts = parts

    def _serve(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        if not request.body:
            raise _illegal("Request body is null.")
        changes = LiteSubscriptionCtlRequestBody.from_request(request.body).subscription_set
        if not changes:
            raise _illegal("LiteSubscriptionCtlRequestBody is empty.")
        self._check_size(changes)
        named = [(change, _lmqs_of(change)) for change in changes]
        self._parts.on_loop(lambda: self._go_on(connection, request, self._all(connection, named)))
        return None

    def _check_size(self, changes: list[LiteSubscriptionDTO]) -> None:
        """The full names of the light queues take many times what the body took. Raises
        RequestError."""
        named = sum(len(change.lite_topic_set or ()) for change in changes)
        most = max(self._parts.registry.most, _MOST_NAMED)
        if named > most:
            raise RequestError(
                ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
                f"the request names {named} lite topics (limit {most}): split it",
            )

    def _go_on(
        self, connection: ConnectionLike, request: RemotingCommand, steps: Iterator[None]
    ) -> None:
        """The next slice; the answer after the last."""
        answer = request.response(ResponseCode.SUCCESS)
        try:
            for _ in steps:
                self._parts.on_loop(lambda: self._go_on(connection, request, steps))
                return
        except Exception as error:  # noqa: BLE001 - the request guard, for what is served later
            refusal = refusal_of(connection, request.code, error)
            answer = request.response(refusal.code, refusal.remark)
        self._parts.stats.add_answers(request.code, answer.code)
        if not request.is_oneway:
            connection.send_command(answer)

    # -- changes (loop thread) -------------------------------------------------------------------

    def _all(self, connection: ConnectionLike, changes: list[_Named]) -> Iterator[None]:
        """Yields between slices. Raises RequestError."""
        left = SLICE
        for change, lmqs in changes:
            for _ in self._one(connection, change, lmqs):
                left -= 1
                if not left:
                    left = SLICE
                    yield

    def _one(
        self, connection: ConnectionLike, change: LiteSubscriptionDTO, lmqs: dict[str, None]
    ) -> Iterator[None]:
        """Yields before the change, and after each lite topic. A change without its names is passed
        over, as in RocketMQ."""
        yield  # There may be very many changes that name no lite topic.
        if not _is_whole(change) or not self._parts.leads():
            return
        client_id, group_name, topic = (
            change.client_id or "",
            change.group or "",
            change.topic or "",
        )
        if change.action not in _ADDS:
            client = self._parts.registry.find(client_id, group_name)
            if client is not None and client.group.config.topic == topic:
                yield from self._take_away(client, change, lmqs)
            return
        group = self._lite_group(group_name, topic)
        if group.is_wildcard and change.action is LiteSubscriptionAction.PARTIAL_ADD:
            raise _illegal(f"{_JAVA}subscribe lite operation is not supported for this group")
        is_new = self._parts.registry.find(client_id, group_name) is None
        client = self._parts.registry.client_of(
            client_id, group, connection, self._parts.monotonic_ms()
        )
        if group.is_wildcard:
            if is_new:
                self._parts.dispatcher.dispatch_client(client)
        elif change.action is LiteSubscriptionAction.PARTIAL_ADD:
            for lmq in lmqs:
                self._add(client, lmq, change.offset_option)
                yield
        else:
            yield from self._complete(client, change, lmqs)

    def _lite_group(self, name: str, topic: str) -> LiteGroup:
        """Raises RequestError."""
        config = self._parts.find_group(name)
        if config is None or not config.consume_enable:
            raise _illegal(f"{_JAVA}Consumer group is not allowed to consume.")
        group = find_lite_group(config)
        if group is None or group.topic != topic:
            bound = "no topic" if group is None else group.topic
            raise _illegal(f"{_JAVA}group {name} is bound to {bound}, not to {topic}")
        return group

    def _complete(
        self, client: LiteSubscription, change: LiteSubscriptionDTO, lmqs: dict[str, None]
    ) -> Iterator[None]:
        """The client has these lite topics and no others."""
        registry = self._parts.registry
        for lmq in [lmq for lmq in client.lmqs if lmq not in lmqs]:
            registry.remove(client, lmq)
            yield
        for lmq in [lmq for lmq in client.evicted if lmq not in lmqs]:
            registry.knows(client, lmq)
        for lmq in lmqs:
            if registry.is_lost(client, lmq):
                self._tell_evicted(client, lmq)
            elif lmq not in client.lmqs:
                self._add(client, lmq, change.offset_option)
            yield

    def _add(self, client: LiteSubscription, lmq: str, option: OffsetOption | None) -> None:
        parts, group = self._parts, client.group.config
        remote = client.connection.remote_address
        if parts.registry.find(client.client_id, group.name) is not client:
            raise _illegal(f"client {client.client_id} was removed meanwhile")

        def evicted(other: LiteSubscription, lost: str) -> None:
            self._tell_evicted(other, lost)
            if group.resets_when_taken:
                parts.queues.set_offset(remote, group.name, lost, 0)

        parts.registry.add(client, lmq, evicted)
        if option is not None:
            offset = self._asked_offset(group.name, lmq, option)
            if offset is not None:
                parts.queues.set_offset(remote, group.name, lmq, offset)
        parts.dispatcher.subscribed(client, lmq)

    def _asked_offset(self, group: str, lmq: str, option: OffsetOption) -> int | None:
        """Where a subscription begins; None: where the group stands. A time is ignored, as in
        RocketMQ."""
        queues, value = self._parts.queues, option.value
        if option.type is OffsetOptionType.OFFSET:
            return value
        if option.type is OffsetOptionType.TAIL_N:
            committed = queues.committed(group, lmq)
            return max(0, committed - value) if committed >= 0 else None
        if option.type is OffsetOptionType.POLICY and value == _MIN:
            return 0
        if option.type is OffsetOptionType.POLICY and value == _MAX:
            return queues.end(lmq)
        return None

    def _take_away(
        self, client: LiteSubscription, change: LiteSubscriptionDTO, lmqs: dict[str, None]
    ) -> Iterator[None]:
        registry, group = self._parts.registry, client.group.config
        if change.action is LiteSubscriptionAction.COMPLETE_REMOVE:
            yield from registry.dropping(client)
            return
        client.updated_ms = self._parts.monotonic_ms()
        for lmq in lmqs:
            registry.knows(client, lmq)
            if registry.remove(client, lmq) and group.resets_when_left:
                remote = client.connection.remote_address
                self._parts.queues.set_offset(remote, group.name, lmq, 0)
            yield

    def _tell_evicted(self, client: LiteSubscription, lmq: str) -> None:
        """200073: another client of its group has this lite topic now."""
        name = parse_lite_queue(lmq)
        assert name is not None
        header = NotifyUnsubscribeLiteRequestHeader(
            client_id=client.client_id,
            lite_topic=name.lite,
            consumer_group=client.group.config.name,
        )
        client.connection.send_command(
            RemotingCommand.request(
                RequestCode.NOTIFY_UNSUBSCRIBE_LITE, encode_header(header), oneway=True
            )
        )


def _illegal(words: str) -> RequestError:
    return RequestError(ResponseCode.ILLEGAL_OPERATION, words)


def _is_whole(change: LiteSubscriptionDTO) -> bool:
    names = change.client_id, change.group, change.topic
    return change.action is not None and all(name and name.strip() for name in names)


def _lmqs_of(change: LiteSubscriptionDTO) -> dict[str, None]:
    """The light queues that a change names. Raises RequestError."""
    if not _is_whole(change):
        return {}
    return dict.fromkeys(_lmq_of(change.topic or "", lite) for lite in change.lite_topic_set or ())


def _lmq_of(topic: str, lite: str) -> str:
    """Raises RequestError for what no lite topic can be named."""
    lmq = to_lmq_name(topic, lite)
    if not is_lite_name(lite) or not is_lmq_name(lmq):
        raise _illegal(
            f"{_JAVA}{lite[:MOST_LITE_NAME]!a} is no name of a lite topic of {topic}: "
            f"{LITE_NAME_RULE}, with its parent at most 120"
        )
    return lmq
