"""The access table: request code -> who may send it, and whether it changes state.

Data only, any thread. It has one row for each request code that this broker serves; a test compares
it with the routes. A code without a row is denied (request_guard.py). docs/access.md shows the
table; a test compares that as well.

                with aclEnable=true                        with aclEnable=false
    EVERYBODY   everybody, unsigned: what is said is       everybody
                only a reason to ask
    ACCOUNT     an account                                 everybody
    RESOURCES   an account with the rights that            everybody
                access_resources.py names; 33, 36 and
                37 also those on the message at that
                place (processor/stored_rights.py)
    BROKER      an account                                 everybody (the processor checks what
                                                           a broker may tell this one)
    ADMIN       an account with admin: true, from          adminAllowedAddresses
                aclAdminAllowedAddresses

With access control of 5.x (broker/auth) its users and ACLs decide (broker/auth/needed_rights.py),
and ADMIN is held to aclAdminAllowedAddresses, or without authentication to adminAllowedAddresses.

With ACL, a whitelisted address needs no account for any row, as in RocketMQ. RocketMQ requires an
admin for 17, 25, 200, 207 and 215 only.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.acl import access_resources as resources
from broker.acl.access_resources import ResourcesOf
from remoting.request_code import RequestCode as Code


class Who(enum.Enum):
    """Who may send a request."""

    EVERYBODY = enum.auto()
    ACCOUNT = enum.auto()
    RESOURCES = enum.auto()
    BROKER = enum.auto()
    ADMIN = enum.auto()


@dataclass(frozen=True, slots=True)
class AccessRow:
    """One row. `resources_of`: for RESOURCES only."""

    who: Who
    changes_state: bool
    resources_of: ResourcesOf | None = None
    named_by: tuple[str, ...] = ()
    """Of hot codes: the extFields that decide which rights are needed, here and with access control
    of 5.x (AllowedRequests)."""


def _reads(resources_of: ResourcesOf | None = None, *named_by: str) -> AccessRow:
    who = Who.ACCOUNT if resources_of is None else Who.RESOURCES
    return AccessRow(who, changes_state=False, resources_of=resources_of, named_by=named_by)


def _changes(resources_of: ResourcesOf, *named_by: str) -> AccessRow:
    return AccessRow(
        Who.RESOURCES, changes_state=True, resources_of=resources_of, named_by=named_by
    )


_TOPIC_AND_GROUP: Final = ("consumerGroup", "topic")
_OPERATOR: Final = AccessRow(Who.ADMIN, changes_state=True)
_SECRET: Final = AccessRow(Who.ADMIN, changes_state=False)
_TABLES: Final = AccessRow(Who.BROKER, changes_state=False)
_GROUP_MEMBER: Final = AccessRow(Who.BROKER, changes_state=True)
_NOTICE: Final = AccessRow(Who.EVERYBODY, changes_state=False)
"""Of a controller, which has no account and signs nothing."""

ACCESS_TABLE: Final[Mapping[int, AccessRow]] = {
    # Messages.
    Code.SEND_MESSAGE: _changes(resources.send, "topic"),
    Code.SEND_MESSAGE_V2: _changes(resources.send_v2, "b"),
    Code.SEND_BATCH_MESSAGE: _changes(resources.send_v2, "b"),
    Code.SEND_REPLY_MESSAGE: _changes(resources.reply),
    Code.SEND_REPLY_MESSAGE_V2: _changes(resources.reply_v2),
    Code.CONSUMER_SEND_MSG_BACK: _changes(resources.send_back),
    Code.END_TRANSACTION: _changes(resources.end_transaction),
    Code.RECALL_MESSAGE: _changes(resources.send),
    Code.PULL_MESSAGE: _reads(resources.pull, *_TOPIC_AND_GROUP),
    Code.LITE_PULL_MESSAGE: _reads(resources.pull, *_TOPIC_AND_GROUP),
    Code.QUERY_MESSAGE: _reads(resources.query),
    Code.VIEW_MESSAGE_BY_ID: _reads(resources.query),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _reads(resources.bounds),
    Code.GET_MAX_OFFSET: _reads(resources.bounds),
    Code.GET_MIN_OFFSET: _reads(resources.bounds),
    Code.GET_EARLIEST_MSG_STORETIME: _reads(resources.bounds),
    # Pop consumption.
    Code.POP_MESSAGE: _changes(resources.popped, *_TOPIC_AND_GROUP),
    Code.ACK_MESSAGE: _changes(resources.popped, *_TOPIC_AND_GROUP),
    Code.BATCH_ACK_MESSAGE: _changes(resources.batch_ack),
    Code.CHANGE_MESSAGE_INVISIBLETIME: _changes(resources.popped, *_TOPIC_AND_GROUP),
    Code.PEEK_MESSAGE: _reads(resources.popped),
    Code.NOTIFICATION: _reads(resources.popped),
    Code.POLLING_INFO: _reads(resources.popped),
    Code.POP_LITE_MESSAGE: _changes(resources.popped),
    Code.LITE_SUBSCRIPTION_CTL: _changes(resources.lite_subscriptions),
    Code.QUERY_ASSIGNMENT: _reads(resources.assignment),
    Code.SET_MESSAGE_REQUEST_MODE: _OPERATOR,
    # Clients.
    Code.HEART_BEAT: _changes(resources.heartbeat),
    Code.UNREGISTER_CLIENT: _changes(resources.consumer_group),
    Code.CHECK_CLIENT_CONFIG: _reads(resources.check_client),
    Code.GET_CONSUMER_LIST_BY_GROUP: _reads(resources.consumer_group),
    Code.QUERY_CONSUMER_OFFSET: _reads(resources.pull, *_TOPIC_AND_GROUP),
    Code.UPDATE_CONSUMER_OFFSET: _changes(resources.pull, *_TOPIC_AND_GROUP),
    Code.LOCK_BATCH_MQ: _changes(resources.lock),
    Code.UNLOCK_BATCH_MQ: _changes(resources.lock),
    # Operators who look.
    Code.GET_BROKER_CONFIG: _reads(),
    Code.GET_BROKER_RUNTIME_INFO: _reads(),
    Code.GET_BROKER_CLUSTER_ACL_INFO: _reads(),
    Code.GET_TOPIC_STATS_INFO: _reads(),
    Code.GET_CONSUMER_CONNECTION_LIST: _reads(),
    Code.GET_PRODUCER_CONNECTION_LIST: _reads(),
    Code.GET_CONSUME_STATS: _reads(),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _reads(),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _reads(),
    Code.QUERY_CONSUME_TIME_SPAN: _reads(),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _reads(),
    Code.GET_CONSUMER_RUNNING_INFO: _reads(),
    Code.QUERY_CORRECTION_OFFSET: _reads(),
    Code.VIEW_BROKER_STATS_DATA: _reads(),
    Code.GET_BROKER_CONSUME_STATS: _reads(),
    Code.QUERY_CONSUME_QUEUE: _reads(),
    Code.GET_ALL_PRODUCER_INFO: _reads(),
    Code.QUERY_TOPICS_BY_CONSUMER: _reads(),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _reads(),
    Code.GET_TOPIC_CONFIG: _reads(),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: _reads(),
    Code.GET_BROKER_HA_STATUS: _reads(),
    Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: _reads(),
    Code.EXPORT_ROCKSDB_CONFIG_TO_JSON: _reads(),
    Code.GET_BROKER_EPOCH_CACHE: _reads(),
    Code.GET_COLD_DATA_FLOW_CTR_INFO: _reads(),
    Code.GET_BROKER_LITE_INFO: _reads(),
    Code.GET_PARENT_TOPIC_INFO: _reads(),
    Code.GET_LITE_TOPIC_INFO: _reads(),
    Code.GET_LITE_CLIENT_INFO: _reads(),
    Code.GET_LITE_GROUP_INFO: _reads(),
    Code.GET_METRICS: _reads(),
    Code.GET_METRICS_DUMP: _reads(),
    Code.GET_ADMIN_AUDIT: _reads(),
    # Operators who change something.
    Code.UPDATE_AND_CREATE_TOPIC: _OPERATOR,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _OPERATOR,
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: _OPERATOR,
    Code.DELETE_TOPIC_IN_BROKER: _OPERATOR,
    Code.DELETE_TOPIC_IN_BROKER_LIST: _OPERATOR,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _OPERATOR,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _OPERATOR,
    Code.DELETE_SUBSCRIPTIONGROUP: _OPERATOR,
    Code.DELETE_SUBSCRIPTION_GROUP_LIST: _OPERATOR,
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: _OPERATOR,
    Code.UPDATE_BROKER_CONFIG: _OPERATOR,
    Code.UPDATE_AND_CREATE_ACL_CONFIG: _OPERATOR,
    Code.DELETE_ACL_CONFIG: _OPERATOR,
    Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _OPERATOR,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _OPERATOR,
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: _OPERATOR,
    Code.CONSUME_MESSAGE_DIRECTLY: _OPERATOR,
    Code.CLONE_GROUP_OFFSET: _OPERATOR,
    Code.CLEAN_UNUSED_TOPIC: _OPERATOR,
    Code.RESUME_CHECK_HALF_MESSAGE: _OPERATOR,
    Code.DELETE_EXPIRED_COMMITLOG: _OPERATOR,
    Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: _OPERATOR,
    Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: _OPERATOR,
    Code.SET_COMMITLOG_READ_MODE: _OPERATOR,
    Code.TRIGGER_LITE_DISPATCH: _OPERATOR,
    Code.VERIFY_LOG: _OPERATOR,
    Code.RESET_MASTER_FLUSH_OFFSET: _OPERATOR,
    Code.POP_ROLLBACK: _OPERATOR,
    Code.SWITCH_TIMER_ENGINE: _OPERATOR,
    # Brokers of the group.
    Code.GET_ALL_TOPIC_CONFIG: _TABLES,
    Code.GET_ALL_MESSAGE_REQUEST_MODE: _TABLES,
    Code.GET_ALL_CONSUMER_OFFSET: _TABLES,
    Code.GET_ALL_DELAY_OFFSET: _TABLES,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _TABLES,
    Code.GET_TIMER_CHECK_POINT: _TABLES,
    Code.GET_TIMER_METRICS: _TABLES,
    Code.GET_LOG_DIGESTS: _TABLES,
    Code.EXCHANGE_BROKER_HA_INFO: _GROUP_MEMBER,
    Code.NOTIFY_MIN_BROKER_ID_CHANGE: _GROUP_MEMBER,
    Code.NOTIFY_BROKER_ROLE_CHANGED: _NOTICE,
    Code.ANNOUNCE_HA_LINK: _GROUP_MEMBER,
    Code.GET_ACL_FILES: _SECRET,
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: _SECRET,
    # Users and ACLs of 5.x.
    Code.AUTH_CREATE_USER: _OPERATOR,
    Code.AUTH_UPDATE_USER: _OPERATOR,
    Code.AUTH_DELETE_USER: _OPERATOR,
    Code.AUTH_GET_USER: _SECRET,
    Code.AUTH_LIST_USER: _SECRET,
    Code.AUTH_CREATE_ACL: _OPERATOR,
    Code.AUTH_UPDATE_ACL: _OPERATOR,
    Code.AUTH_DELETE_ACL: _OPERATOR,
    Code.AUTH_GET_ACL: _SECRET,
    Code.AUTH_LIST_ACL: _SECRET,
}
