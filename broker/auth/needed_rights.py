"""What a request needs: which actions on which resources. Pure, any thread.

`NEEDED` has the codes for which RocketMQ asks for rights, as DefaultAuthorizationContextBuilder and
the annotations @RocketMQAction and @RocketMQResource of its header classes say; of several actions
one suffices, of several resources each is needed. The codes for which RocketMQ asks for nothing,
though they change or read what others ask for, follow the row of the access table (`by_row`):

    ADMIN, and BROKER that changes      Update on the cluster
    RESOURCES                           what access_resources.py names: Pub, Sub, or either
    ACCOUNT, BROKER                     nothing, as in RocketMQ

Lists of new topics and groups (18, 200, 225) need Create on each, as 17 does for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from broker.acl.access_resources import Resources
from broker.acl.access_table import AccessRow, Who
from broker.acl.permission import Permission
from broker.auth.policy import Action
from broker.auth.resource import (
    Resource,
    ResourceType,
    group_resource,
    is_retry_topic,
    topic_or_group,
    topic_resource,
)
from remoting.body.heartbeat import HeartbeatData
from remoting.body.lite import LiteSubscriptionCtlRequestBody
from remoting.body.lock_batch import LockBatchRequestBody
from remoting.body.subscription_group_config import (
    DeleteSubscriptionGroupListRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from remoting.body.topic_config import CreateTopicListRequestBody, DeleteTopicListRequestBody
from remoting.key_builder import parse_normal_topic
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code


class Needed(NamedTuple):
    """One of `actions` on `resource`."""

    resource: Resource
    actions: tuple[Action, ...]


NeededOf = Callable[[RemotingCommand, str], Iterable[Needed]]
"""Of a request, and the name of the cluster. Raises RequestError for a body that cannot be read."""

_PUB: Final = (Action.PUB,)
_SUB: Final = (Action.SUB,)
_GET: Final = (Action.GET,)
_CREATE: Final = (Action.CREATE,)
_DELETE: Final = (Action.DELETE,)
_UPDATE: Final = (Action.UPDATE,)
_SUB_GET: Final = (Action.SUB, Action.GET)
_SUB_UPDATE: Final = (Action.SUB, Action.UPDATE)


def needed_rights(request: RemotingCommand, row: AccessRow, cluster: str) -> Iterable[Needed]:
    """What this request needs. Raises RequestError for a body that cannot be read."""
    needed_of = NEEDED.get(request.code)
    if needed_of is not None:
        return needed_of(request, cluster)
    return by_row(request, row, cluster)


def by_row(request: RemotingCommand, row: AccessRow, cluster: str) -> Iterable[Needed]:
    """Of a code for which RocketMQ asks for nothing."""
    if row.who is Who.ADMIN or (row.who is Who.BROKER and row.changes_state):
        return (Needed(Resource(ResourceType.CLUSTER, cluster), _UPDATE),)
    return () if row.resources_of is None else translated(row.resources_of(request))


def translated(resources: Resources) -> list[Needed]:
    """Rights as the access control of 4.9 names them."""
    return [
        Needed(topic_or_group(name), _TRANSLATED[permission])
        for name, permission in resources.items()
    ]


_TRANSLATED: Final = {
    Permission.PUB: _PUB,
    Permission.SUB: _SUB,
    Permission.ANY: (Action.PUB, Action.SUB),
}


def to_read_stored(resources: Resources) -> list[Needed]:
    """Of a message that a request names by its place: Get reads it as well as Sub (33)."""
    return [
        Needed(resource, _SUB_GET if actions == _SUB else actions)
        for resource, actions in translated(resources)
    ]


# -- as the builder's switch ---------------------------------------------------------------------


def _sent(topic_field: str) -> NeededOf:
    """A send; one to a retry topic is its group's (RocketMQ: that of the group it names)."""

    def needed(request: RemotingCommand, _cluster: str) -> Iterable[Needed]:
        topic = request.ext_fields.get(topic_field)
        if is_retry_topic(topic):
            return (Needed(group_resource(topic), _SUB),)
        return (Needed(topic_resource(topic), _PUB),)

    return needed


def _pulled(request: RemotingCommand, _cluster: str) -> Iterable[Needed]:
    """Topic and group; another group's retry topic needs that group, too (RocketMQ: only this)."""
    fields = request.ext_fields
    topic = fields.get("topic")
    group = Needed(group_resource(fields.get("consumerGroup")), _SUB)
    if topic is not None and is_retry_topic(topic):
        owner = Needed(group_resource(topic), _SUB)
        return (group,) if owner == group else (group, owner)
    return (Needed(topic_resource(topic), _SUB), group)


def _transaction_ended(request: RemotingCommand, _cluster: str) -> Iterable[Needed]:
    topic = request.ext_fields.get("topic", "")
    return (Needed(topic_resource(topic), _PUB),) if topic.strip() else ()


def _offset(actions: tuple[Action, ...]) -> NeededOf:
    def needed(request: RemotingCommand, _cluster: str) -> Iterable[Needed]:
        fields = request.ext_fields
        topic, group = fields.get("topic"), group_resource(fields.get("consumerGroup"))
        if is_retry_topic(topic):
            return (Needed(group, actions),)
        return (Needed(topic_resource(topic), actions), Needed(group, actions))

    return needed


def _heartbeat(request: RemotingCommand, _cluster: str) -> Iterable[Needed]:
    for consumer in HeartbeatData.from_request(request.body).consumer_data_set:
        yield Needed(group_resource(consumer.group_name), _SUB)
        for subscription in consumer.subscription_data_set:
            if not is_retry_topic(subscription.topic):
                yield Needed(topic_resource(subscription.topic), _SUB)


def _unregistered(request: RemotingCommand, _cluster: str) -> Iterable[Needed]:
    group = request.ext_fields.get("consumerGroup", "")
    return (Needed(group_resource(group), _SUB),) if group.strip() else ()


def _members(request: RemotingCommand, _cluster: str) -> Iterable[Needed]:
    return (Needed(group_resource(request.ext_fields.get("consumerGroup")), _SUB_GET),)


def _locked(request: RemotingCommand, _cluster: str) -> Iterable[Needed]:
    body = LockBatchRequestBody.from_request(request.body)
    yield Needed(group_resource(body.consumer_group), _SUB)
    for queue in body.mq_set:
        if not is_retry_topic(queue.topic):
            yield Needed(topic_resource(queue.topic), _SUB)


# -- as the annotations --------------------------------------------------------------------------


def _fields(action: Action, *fields: str) -> NeededOf:
    """Every resource that the header names. fields: "Topic topic", "Group filterGroups ,"; the last
    word splits the value."""
    actions = (action,)
    plan = [field.split() for field in fields]

    def needed(request: RemotingCommand, _cluster: str) -> Iterable[Needed]:
        for kind, field, *splitter in plan:
            value = request.ext_fields.get(field)
            if value is None:
                continue
            names = [one for one in value.split(splitter[0]) if one] if splitter else [value]
            for name in names:
                if kind == ResourceType.TOPIC:
                    yield Needed(topic_or_group(name), actions)
                else:
                    yield Needed(Resource(ResourceType(kind), name), actions)

    return needed


def _cluster(action: Action) -> NeededOf:
    """The cluster that this broker is in."""
    actions = (action,)

    def needed(_request: RemotingCommand, cluster: str) -> Iterable[Needed]:
        return (Needed(Resource(ResourceType.CLUSTER, cluster), actions),)

    return needed


def _checked_again(request: RemotingCommand, cluster: str) -> Iterable[Needed]:
    """323: a client of 4.9 names no topic, and its message may be of any."""
    topic = request.ext_fields.get("topic", "")
    if not topic.strip():
        return (Needed(Resource(ResourceType.CLUSTER, cluster), _UPDATE),)
    return (Needed(topic_or_group(topic), _UPDATE),)


def _popped(action: Action) -> NeededOf:
    """Group and topic; the group's own pop retry topic stands for the topic that it is of
    (RocketMQ: for a group named like both, which nobody has rights on)."""
    actions = (action,)

    def needed(request: RemotingCommand, _cluster: str) -> Iterable[Needed]:
        fields = request.ext_fields
        group, topic = fields.get("consumerGroup"), fields.get("topic")
        if group is not None:
            yield Needed(group_resource(group), actions)
        if topic is not None:
            name = topic if group is None else parse_normal_topic(topic, group)
            yield Needed(topic_or_group(name), actions)

    return needed


def _lite_subscribed(request: RemotingCommand, _cluster: str) -> Iterable[Needed]:
    """200071: group and parent of each change (RocketMQ: only its proxy asks)."""
    if not request.body:
        return
    for change in LiteSubscriptionCtlRequestBody.from_request(request.body).subscription_set:
        if change.group:
            yield Needed(group_resource(change.group), _SUB)
        if change.topic:
            yield Needed(topic_resource(change.topic), _SUB)


# -- where RocketMQ asks for nothing -------------------------------------------------------------


def _new_topics(request: RemotingCommand, _cluster: str) -> Iterable[Needed]:
    for config in CreateTopicListRequestBody.from_request(request.body).topic_config_list:
        yield Needed(topic_or_group(config.topic_name), _CREATE)


def _new_group(request: RemotingCommand, _cluster: str) -> Iterable[Needed]:
    config = SubscriptionGroupConfig.from_request(request.body)
    return (Needed(group_resource(config.group_name), _CREATE),)


def _new_groups(request: RemotingCommand, _cluster: str) -> Iterable[Needed]:
    for config in SubscriptionGroupList.from_request(request.body).group_config_list:
        yield Needed(group_resource(config.group_name), _CREATE)


def _deleted_topics(request: RemotingCommand, _cluster: str) -> Iterable[Needed]:
    for name in DeleteTopicListRequestBody.from_request(request.body).topic_list:
        yield Needed(topic_or_group(name or ""), _DELETE)


def _deleted_groups(request: RemotingCommand, _cluster: str) -> Iterable[Needed]:
    for name in DeleteSubscriptionGroupListRequestBody.from_request(request.body).group_name_list:
        yield Needed(group_resource(name), _DELETE)


_TOPIC_AND_GROUP: Final = ("Topic topic", "Group group")
_CONSUMER: Final = ("Group consumerGroup", "Topic topic")

NEEDED: Final[Mapping[int, NeededOf]] = {
    # The builder's switch.
    Code.SEND_MESSAGE: _sent("topic"),
    Code.SEND_MESSAGE_V2: _sent("b"),
    Code.SEND_BATCH_MESSAGE: _sent("b"),
    Code.RECALL_MESSAGE: _fields(Action.PUB, "Topic topic"),
    Code.END_TRANSACTION: _transaction_ended,
    Code.CONSUMER_SEND_MSG_BACK: _fields(Action.SUB, "Group group"),
    Code.PULL_MESSAGE: _pulled,
    Code.LITE_PULL_MESSAGE: _pulled,
    Code.QUERY_MESSAGE: lambda request, _cluster: (
        Needed(topic_resource(request.ext_fields.get("topic")), _SUB_GET),
    ),
    Code.HEART_BEAT: _heartbeat,
    Code.UNREGISTER_CLIENT: _unregistered,
    Code.GET_CONSUMER_LIST_BY_GROUP: _members,
    Code.QUERY_CONSUMER_OFFSET: _offset(_SUB_GET),
    Code.UPDATE_CONSUMER_OFFSET: _offset(_SUB_UPDATE),
    Code.LOCK_BATCH_MQ: _locked,
    Code.UNLOCK_BATCH_MQ: _locked,
    # The annotations: messages.
    Code.VIEW_MESSAGE_BY_ID: _fields(Action.GET, "Topic topic"),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _fields(Action.GET, "Topic topic"),
    Code.GET_MAX_OFFSET: _fields(Action.GET, "Topic topic"),
    Code.GET_MIN_OFFSET: _fields(Action.GET, "Topic topic"),
    Code.GET_EARLIEST_MSG_STORETIME: _fields(Action.GET, "Topic topic"),
    Code.QUERY_CONSUME_QUEUE: _fields(Action.GET, "Topic topic", "Group consumerGroup"),
    Code.CONSUME_MESSAGE_DIRECTLY: _fields(Action.SUB, *_CONSUMER),
    Code.RESUME_CHECK_HALF_MESSAGE: _checked_again,
    Code.POP_MESSAGE: _popped(Action.SUB),
    Code.ACK_MESSAGE: _popped(Action.SUB),
    Code.CHANGE_MESSAGE_INVISIBLETIME: _popped(Action.SUB),
    Code.PEEK_MESSAGE: _popped(Action.SUB),
    Code.NOTIFICATION: _popped(Action.SUB),
    Code.POP_LITE_MESSAGE: _popped(Action.SUB),
    Code.LITE_SUBSCRIPTION_CTL: _lite_subscribed,
    Code.POLLING_INFO: _popped(Action.GET),
    # Topics, groups, offsets.
    Code.UPDATE_AND_CREATE_TOPIC: _fields(Action.CREATE, "Topic topic"),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _new_topics,
    Code.DELETE_TOPIC_IN_BROKER: _fields(Action.DELETE, "Topic topic"),
    Code.DELETE_TOPIC_IN_BROKER_LIST: _deleted_topics,
    Code.GET_TOPIC_CONFIG: _fields(Action.GET, "Topic topic"),
    Code.GET_TOPIC_STATS_INFO: _fields(Action.GET, "Topic topic"),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _fields(Action.GET, "Topic topic"),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _new_group,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _new_groups,
    Code.DELETE_SUBSCRIPTIONGROUP: _fields(Action.DELETE, "Group groupName"),
    Code.DELETE_SUBSCRIPTION_GROUP_LIST: _deleted_groups,
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: _fields(Action.GET, "Group group"),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: _fields(Action.UPDATE, "Group group", "Topic topic"),
    Code.GET_CONSUMER_CONNECTION_LIST: _fields(Action.GET, "Group consumerGroup"),
    Code.GET_CONSUMER_RUNNING_INFO: _fields(Action.GET, "Group consumerGroup"),
    Code.GET_CONSUME_STATS: _fields(Action.GET, *_CONSUMER, "Topic topicList ;"),
    Code.QUERY_CONSUME_TIME_SPAN: _fields(Action.GET, *_TOPIC_AND_GROUP),
    Code.QUERY_TOPICS_BY_CONSUMER: _fields(Action.GET, "Group group"),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _fields(Action.GET, "Group group", "Topic topic"),
    Code.QUERY_CORRECTION_OFFSET: _fields(
        Action.GET, "Group filterGroups ,", "Group compareGroup", "Topic topic"
    ),
    Code.CLONE_GROUP_OFFSET: _fields(Action.UPDATE, "Group destGroup", "Topic topic"),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _fields(Action.UPDATE, "Group group", "Topic topic"),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _fields(Action.GET, *_TOPIC_AND_GROUP),
    Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: _fields(Action.GET, "Topic topic"),
    Code.GET_PARENT_TOPIC_INFO: _fields(Action.GET, "Topic topic"),
    Code.GET_LITE_TOPIC_INFO: _fields(Action.GET, "Topic parentTopic"),
    Code.GET_LITE_CLIENT_INFO: _fields(Action.GET, "Topic parentTopic", "Group group"),
    Code.GET_LITE_GROUP_INFO: _fields(Action.GET, "Group group"),
    Code.TRIGGER_LITE_DISPATCH: _fields(Action.UPDATE, "Group group"),
    # The broker.
    Code.GET_BROKER_LITE_INFO: _cluster(Action.GET),
    Code.GET_PRODUCER_CONNECTION_LIST: _cluster(Action.GET),
    Code.GET_ALL_PRODUCER_INFO: _cluster(Action.GET),
    Code.VIEW_BROKER_STATS_DATA: _cluster(Action.GET),
    Code.GET_BROKER_CONSUME_STATS: _cluster(Action.GET),
    Code.GET_METRICS: _cluster(Action.GET),
    Code.GET_METRICS_DUMP: _cluster(Action.GET),
    Code.GET_ADMIN_AUDIT: _cluster(Action.GET),
    Code.EXPORT_ROCKSDB_CONFIG_TO_JSON: _cluster(Action.GET),
    Code.EXCHANGE_BROKER_HA_INFO: _cluster(Action.UPDATE),
    Code.RESET_MASTER_FLUSH_OFFSET: _cluster(Action.UPDATE),
    Code.NOTIFY_MIN_BROKER_ID_CHANGE: _cluster(Action.UPDATE),
    Code.ADD_BROKER: _cluster(Action.UPDATE),
    Code.REMOVE_BROKER: _cluster(Action.UPDATE),
    # Users and rights.
    Code.AUTH_CREATE_USER: _cluster(Action.UPDATE),
    Code.AUTH_UPDATE_USER: _cluster(Action.UPDATE),
    Code.AUTH_DELETE_USER: _cluster(Action.UPDATE),
    Code.AUTH_GET_USER: _cluster(Action.GET),
    Code.AUTH_LIST_USER: _cluster(Action.GET),
    Code.AUTH_CREATE_ACL: _cluster(Action.UPDATE),
    Code.AUTH_UPDATE_ACL: _cluster(Action.UPDATE),
    Code.AUTH_DELETE_ACL: _cluster(Action.UPDATE),
    Code.AUTH_GET_ACL: _cluster(Action.GET),
    Code.AUTH_LIST_ACL: _cluster(Action.GET),
}
