"""PullSubscriptions: determines the filter of a pull, by tags or by properties.

Runs on the loop thread, once for each pull. The expression comes with the pull (flag 4) or from the
group's latest heartbeat. Follows RocketMQ's PullMessageProcessor between the checks of the topic
and the read, including the order of checks; but where RocketMQ delivers every message to a pull
whose expression cannot be compiled, such a pull is rejected here.

Tested by tests/broker/pull/test_pull_message_processor.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.client.consumer_manager import ConsumerManager
from broker.filter.consumer_filter_manager import ConsumerFilterManager
from broker.filter.filter_factory import FilterFactory, is_tag_type, prepare_to_compile
from broker.filter.message_filter import (
    ExpressionForRetryMessageFilter,
    ExpressionMessageFilter,
)
from broker.filter.selector import InvalidSelectorError, Selector
from broker.filter.subscription_filter import SubscribedCodes, TagExpressions
from broker.longpolling.pull_header import FLAG_SUBSCRIPTION, PullHeader, Wanted
from broker.topic.system_topics import RETRY_GROUP_TOPIC_PREFIX
from remoting.body.heartbeat import SubscriptionData
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.errors import RequestError
from remoting.headers.pull_message import ForbiddenType
from remoting.response_code import ResponseCode

_PARSE_FAILED: Final = "parse the consumer's subscription failed"

IsReadable = Callable[[str, str], bool]
"""Whether a group may read a topic."""


def forbidden(kind: ForbiddenType, remark: str) -> RequestError:
    """The error of a pull without permission; as 5.x it says what of it denies that."""
    return RequestError(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(int(kind))})


class PullSubscriptions:
    """Owned by: the loop thread."""

    def __init__(
        self,
        consumers: ConsumerManager,
        filters: ConsumerFilterManager,
        is_readable: IsReadable,
        *,
        enable_property_filter: bool,
        filter_support_retry: bool,
    ) -> None:
        self._consumers = consumers
        self._filters = filters
        self._is_readable = is_readable
        self._enable_property_filter = enable_property_filter
        self._filter_support_retry = filter_support_retry
        self._tags = TagExpressions()
        self._subscribed = SubscribedCodes()
        self._factory = FilterFactory()
        if enable_property_filter:
            prepare_to_compile()

    def wanted(self, header: PullHeader, group: SubscriptionGroupConfig) -> Wanted:
        """The filters of one pull. Raises RequestError."""
        if header.sysFlag & FLAG_SUBSCRIPTION:
            codes, properties = self._of_pull(header)
        else:
            codes, properties = self._of_heartbeat(header, group)
        if self._filter_support_retry and header.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            name = header.topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
            properties = ExpressionForRetryMessageFilter(self._filters, name)
        return codes, properties

    def _of_pull(self, header: PullHeader) -> Wanted:
        if is_tag_type(header.expressionType):
            try:
                return self._tags.codes(header.subscription), None
            except ValueError as error:
                raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, _PARSE_FAILED) from error
        kind = header.expressionType or ""
        if header.subscription:
            self._check_enabled(kind)
        try:
            selector = self._factory.compile(kind, header.subscription)
        except InvalidSelectorError as error:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"{_PARSE_FAILED}: {error}"
            ) from error
        return None, ExpressionMessageFilter(selector)

    def _of_heartbeat(self, header: PullHeader, group: SubscriptionGroupConfig) -> Wanted:
        subscription = self._subscription(header, group)
        kind = subscription.expression_type
        if not is_tag_type(kind):
            selector = self._registered(header)
            self._check_enabled(kind)
            if subscription.class_filter_mode:
                return None, None
            return None, ExpressionMessageFilter(selector)
        if subscription.class_filter_mode or subscription.sub_string == "*":
            return None, None
        return self._subscribed.codes(header.consumerGroup, subscription), None

    def _subscription(self, header: PullHeader, group: SubscriptionGroupConfig) -> SubscriptionData:
        name = header.consumerGroup
        if not self._consumers.has_group(name):
            raise RequestError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist: {name}"
            )
        if not group.consume_broadcast_enable and self._consumers.is_broadcasting(name):
            raise forbidden(
                ForbiddenType.BROADCASTING_DISABLE_FORBIDDEN,
                f"the consumer group[{name}] can not consume by broadcast way",
            )
        topic = header.checked_topic
        if not self._is_readable(name, topic):
            raise forbidden(
                ForbiddenType.SUBSCRIPTION_FORBIDDEN,
                f"the consumer group[{name}] is forbidden for topic[{topic}]",
            )
        subscription = self._consumers.find_subscription(name, topic)
        if subscription is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's subscription not exist: {name}, {topic}",
            )
        if subscription.sub_version < header.subVersion:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        return subscription

    def _registered(self, header: PullHeader) -> Selector:
        """The expression that was compiled on the heartbeat."""
        name, topic = header.consumerGroup, header.checked_topic
        found = self._filters.find(topic, name)
        if found is None:
            raise RequestError(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                f"group {name} has no filter for topic {topic}: its expression could not be "
                "compiled, see the broker's log",
            )
        if found.client_version < header.subVersion:
            raise RequestError(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                f"the filter of group {name} for topic {topic} is not the latest: version "
                f"{found.client_version}, the consumer has {header.subVersion}",
            )
        return found.selector

    def _check_enabled(self, kind: str) -> None:
        if not self._enable_property_filter:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {kind}",
            )
