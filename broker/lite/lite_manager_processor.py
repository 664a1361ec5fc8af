"""LiteManagerProcessor: request codes 200074 to 200079; operators look at lite topics.

Runs in the pool of administration. What clients subscribe is the loop's, and is asked there; the
rest is read where it is. A look at a whole group takes time in proportion to the parent's lite
topics. Follows LiteManagerProcessor of RocketMQ 5.5.

Tested by tests/broker/lite/test_lite_manager_processor.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from broker.lite.lite_consumer_lag_calculator import LiteConsumerLagCalculator, LiteLag
from broker.lite.lite_event_dispatcher import LiteEventDispatcher
from broker.lite.lite_lifecycle_manager import LiteLifecycleManager
from broker.lite.lite_metadata_util import (
    LiteGroup,
    expiration_minutes,
    find_lite_group,
    is_lite_parent,
)
from broker.lite.lite_queues import LiteQueues
from broker.lite.lite_settings import LiteSettings
from broker.lite.lite_subscription_registry import LiteSubscriptionRegistry
from broker.processor.table_processor import TableProcessor
from broker.store_access.store_access import StoreAccess
from broker.topic.table_protocols import FindGroup, FindTopic
from remoting.body.json_bean import JsonBean
from remoting.body.lite import (
    ClientGroup,
    GetBrokerLiteInfoResponseBody,
    GetLiteClientInfoResponseBody,
    GetLiteGroupInfoResponseBody,
    GetLiteTopicInfoResponseBody,
    GetParentTopicInfoResponseBody,
    LiteLagInfo,
)
from remoting.body.stats import OffsetWrapper, TopicOffset
from remoting.command_custom_header import decode_header
from remoting.errors import RequestError
from remoting.headers.lite import (
    GetLiteClientInfoRequestHeader,
    GetLiteGroupInfoRequestHeader,
    GetLiteTopicInfoRequestHeader,
    GetParentTopicInfoRequestHeader,
    TriggerLiteDispatchRequestHeader,
)
from remoting.lite_names import parse_lite_queue, to_lmq_name
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.lmq_places import LMQ_QUEUE_ID

_WILDCARD_CLIENT: Final = "*"
_MOST_LITE_TOPICS: Final = 10_000
_MOST_ROWS: Final = 1_000
_UNSET_REMARK: Final = "not set any response code"

T = TypeVar("T")


class OnLoop(Protocol):
    """Runs a function on the loop's thread, and returns what it returned."""

    def __call__(self, function: Callable[[], T], /) -> T:
        """Raises TimeoutError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerParts:
    """The collaborators of this processor."""

    registry: LiteSubscriptionRegistry
    dispatcher: LiteEventDispatcher
    lifecycle: LiteLifecycleManager
    queues: LiteQueues
    store: StoreAccess
    lags: LiteConsumerLagCalculator
    find_topic: FindTopic
    topic_names: Callable[[], list[str]]
    find_group: FindGroup
    """Of known groups; makes none."""
    group_names: Callable[[], list[str]]
    lmq_count: Callable[[], int]
    queue_count: Callable[[], int]
    offset_count: Callable[[], int]
    settings: Callable[[], LiteSettings]
    on_loop: OnLoop
    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]


class LiteManagerProcessor(TableProcessor):
    """See the module. Pool threads."""

    def __init__(self, parts: ManagerParts) -> None:
        super().__init__(
            {
                RequestCode.GET_BROKER_LITE_INFO: self.broker_info,
                RequestCode.GET_PARENT_TOPIC_INFO: self.parent_info,
                RequestCode.GET_LITE_TOPIC_INFO: self.topic_info,
                RequestCode.GET_LITE_CLIENT_INFO: self.client_info,
                RequestCode.GET_LITE_GROUP_INFO: self.group_info,
                RequestCode.TRIGGER_LITE_DISPATCH: self.trigger_dispatch,
            }
        )
        self._parts = parts

    def broker_info(self, _connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """200074: how much of everything there is."""
        parts = self._parts
        registry = parts.registry
        group_meta: dict[str, list[str]] = {}
        for name in parts.group_names():
            group = find_lite_group(parts.find_group(name))
            if group is not None:
                group_meta.setdefault(group.topic, []).append(name)
        parents = (name for name in parts.topic_names() if is_lite_parent(parts.find_topic(name)))
        body = GetBrokerLiteInfoResponseBody(
            store_type="default",
            max_lmq_num=parts.settings().most_light_queues,
            current_lmq_num=parts.lmq_count(),
            lite_subscription_count=registry.subscription_count,
            order_info_count=len(parts.queues.order),
            cq_table_size=parts.queue_count(),
            offset_table_size=parts.offset_count(),
            event_map_size=registry.client_count,
            topic_meta={name: expiration_minutes(parts.find_topic(name)) for name in parents},
            group_meta=group_meta,
        )
        return _answer(request, body)

    def parent_info(self, _connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """200075: one parent topic."""
        topic = decode_header(GetParentTopicInfoRequestHeader, request.ext_fields).topic
        self._check_parent(topic)
        parts = self._parts
        body = GetParentTopicInfoResponseBody(
            topic=topic,
            ttl=expiration_minutes(parts.find_topic(topic)),
            groups=parts.lifecycle.groups_of(topic),
            lmq_num=parts.lmq_count(),
            lite_topic_count=parts.lifecycle.count(topic),
        )
        return _answer(request, body)

    def topic_info(self, _connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """200076: one lite topic and who subscribes it."""
        header = decode_header(GetLiteTopicInfoRequestHeader, request.ext_fields)
        parent, lite = header.parent_topic or "", header.lite_topic or ""
        self._check_parent(parent)
        lmq = to_lmq_name(parent, lite)
        low, high = self._parts.store.offsets(lmq, LMQ_QUEUE_ID)
        body = GetLiteTopicInfoResponseBody(
            parent_topic=parent,
            lite_topic=lite,
            subscriber=self._parts.on_loop(lambda: self._subscribers(parent, lmq)),
            topic_offset=TopicOffset(
                min_offset=low,
                max_offset=high,
                last_update_timestamp=(self._parts.lags.stored_ms(lmq, high - 1) if high else 0),
            ),
            sharding_to_broker=True,
        )
        return _answer(request, body)

    def client_info(self, _connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """200077: one client and what it subscribes."""
        header = decode_header(GetLiteClientInfoRequestHeader, request.ext_fields)
        if header.max_count <= 0:
            raise _invalid("[maxCount] field invalid")
        parent, group = header.parent_topic or "", header.group or ""
        self._check_parent(parent)
        self._lite_group(group, parent)
        client_id, most = header.client_id or "", min(header.max_count, _MOST_LITE_TOPICS)
        body = self._parts.on_loop(lambda: self._client_body(parent, group, client_id, most))
        return _answer(request, body)

    def group_info(self, _connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """200078: what a group has not consumed, of one lite topic or of all."""
        header = decode_header(GetLiteGroupInfoRequestHeader, request.ext_fields)
        group = self._lite_group(header.group)
        if header.lite_topic:
            body = self._one_lag(group, header.lite_topic)
        else:
            body = self._all_lags(group, min(max(0, header.top_k), _MOST_ROWS))
        return _answer(request, body, _UNSET_REMARK)

    def trigger_dispatch(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """200079: every lite topic of a group, or of one client, is looked at again."""
        header = decode_header(TriggerLiteDispatchRequestHeader, request.ext_fields)
        group = self._lite_group(header.group)
        self._parts.on_loop(lambda: self._dispatch(group, header.client_id))
        return request.response(ResponseCode.SUCCESS, _UNSET_REMARK)

    # -- on the loop -----------------------------------------------------------------------------

    def _subscribers(self, parent: str, lmq: str) -> list[ClientGroup]:
        found = []
        for group in self._parts.registry.groups_of(parent):
            name = group.config.name
            if group.config.is_wildcard:
                found.append(ClientGroup(client_id=_WILDCARD_CLIENT, group=name))
            else:
                found += [ClientGroup(client_id=one.client_id, group=name) for one in group.of(lmq)]
        return found

    def _client_body(
        self, parent: str, group: str, client_id: str, most: int
    ) -> GetLiteClientInfoResponseBody:
        client = self._parts.registry.find(client_id, group)
        if client is None:
            return GetLiteClientInfoResponseBody(
                parent_topic=parent, group=group, client_id=client_id
            )
        ago_ms = self._parts.monotonic_ms() - client.polled_ms
        return GetLiteClientInfoResponseBody(
            parent_topic=parent,
            group=group,
            client_id=client_id,
            last_access_time=self._parts.now_ms() - ago_ms,
            lite_topic_count=len(client.lmqs),
            lite_topic_set=[lmq for lmq, _ in zip(client.lmqs, range(most), strict=False)],
        )

    def _dispatch(self, group: LiteGroup, client_id: str | None) -> None:
        registry, dispatcher = self._parts.registry, self._parts.dispatcher
        if client_id:
            client = registry.find(client_id, group.name)
            if client is not None:
                dispatcher.dispatch_client(client)
            return
        clients = registry.find_group(group.topic, group.name)
        if clients is not None:
            dispatcher.dispatch_group(clients)

    # -- lags ------------------------------------------------------------------------------------

    def _one_lag(self, group: LiteGroup, lite: str) -> GetLiteGroupInfoResponseBody:
        lmq = to_lmq_name(group.topic, lite)
        high, committed = self._parts.queues.end(lmq), self._parts.queues.committed(group.name, lmq)
        body = partial(
            GetLiteGroupInfoResponseBody,
            group=group.name,
            parent_topic=group.topic,
            lite_topic=lite,
        )
        if not high:
            return body(total_lag_count=-1)
        if committed < 0:
            return body(earliest_unconsumed_timestamp=0)
        lag = max(0, high - committed)
        return body(
            earliest_unconsumed_timestamp=self._parts.lags.stored_ms(lmq, committed) if lag else -1,
            total_lag_count=lag,
            lite_topic_offset_wrapper=OffsetWrapper(
                broker_offset=high,
                consumer_offset=committed,
                last_timestamp=max(0, self._parts.lags.stored_ms(lmq, committed - 1)),
                pull_offset=0,
            ),
        )

    def _all_lags(self, group: LiteGroup, top: int) -> GetLiteGroupInfoResponseBody:
        """Of the lite topics that the group has consumed of."""
        lags = list(self._parts.lags.lags(group))
        oldest: list[LiteLagInfo] = []
        if self._parts.settings().collects_lag_times:
            times = map(self._lag_of, lags)
            top_times = min(top, self._parts.settings().lag_times)
            oldest = heapq.nsmallest(
                top_times, times, key=lambda one: one.earliest_unconsumed_timestamp
            )
        return GetLiteGroupInfoResponseBody(
            group=group.name,
            parent_topic=group.topic,
            earliest_unconsumed_timestamp=(
                oldest[0].earliest_unconsumed_timestamp if oldest else -1
            ),
            total_lag_count=sum(lag.messages for lag in lags),
            lag_count_top_k=[
                self._lag_of(lag) for lag in heapq.nlargest(top, lags, key=lambda one: one.messages)
            ],
            lag_timestamp_top_k=oldest,
        )

    def _lag_of(self, lag: LiteLag) -> LiteLagInfo:
        name = parse_lite_queue(lag.lmq)
        return LiteLagInfo(
            lite_topic=lag.lmq if name is None else name.lite,
            lag_count=lag.messages,
            earliest_unconsumed_timestamp=self._parts.lags.stored_ms(lag.lmq, lag.offset),
        )

    # -- checks ----------------------------------------------------------------------------------

    def _check_parent(self, topic: str) -> None:
        config = self._parts.find_topic(topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"Topic [{topic}] not exist.")
        if not is_lite_parent(config):
            raise _invalid(f"Topic [{topic}] type not match.")

    def _lite_group(self, name: str, parent: str | None = None) -> LiteGroup:
        config = self._parts.find_group(name)
        if config is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group [{name}] not exist."
            )
        group = find_lite_group(config)
        if group is None:
            raise _invalid(f"Group [{name}] is not a LITE group.")
        if parent is not None and group.topic != parent:
            raise _invalid(f"Subscription [{name}]-[{parent}] not match.")
        return group


def _invalid(words: str) -> RequestError:
    return RequestError(ResponseCode.INVALID_PARAMETER, words)


def _answer(request: RemotingCommand, body: JsonBean, remark: str | None = None) -> RemotingCommand:
    return request.response(ResponseCode.SUCCESS, remark, None, body.to_json_bytes())
