"""System topics and groups: their names, and who may send to them.

Pure data and checks (Java: TopicValidator, parts of MixAll, NamespaceUtil), any thread. The set of
system topics belongs to one broker (cluster, broker, trace and reply topics are added at its
start), so it is an object and not a global as in RocketMQ.
"""

from __future__ import annotations

from typing import Final

from remoting.errors import RequestError
from remoting.response_code import ResponseCode

AUTO_CREATE_TOPIC_KEY_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_OP_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
"""Of 5.5, whose brokers register them; used with transRocksDBEnable only."""
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
"""Of 5.x: the name under which RocksDB's queues keep how far they are."""
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT_TOPIC: Final = "OFFSET_MOVED_EVENT"
REPLY_TOPIC_POSTFIX: Final = "REPLY_TOPIC"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"

RETRY_GROUP_TOPIC_PREFIX: Final = "%RETRY%"
DLQ_GROUP_TOPIC_PREFIX: Final = "%DLQ%"
DLQ_QUEUES: Final = 1

PERM_INHERIT: Final = 1
PERM_WRITE: Final = 2
PERM_READ: Final = 4
PERM_READ_WRITE: Final = PERM_READ | PERM_WRITE

TOPIC_SYS_FLAG_UNIT: Final = 1
TOPIC_SYS_FLAG_UNIT_SUB: Final = 2

FORBIDDEN_TO_SEND: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT_TOPIC,
        CHECKPOINT_TOPIC,
    }
)
"""Clients may not send to these; only the broker writes them."""
REVIVE_TOPIC_PREFIX: Final = f"{SYSTEM_TOPIC_PREFIX}REVIVE_LOG_"
MEMBER_TOPIC_PREFIX: Final = f"{SYSTEM_TOPIC_PREFIX}SYNC_BROKER_MEMBER_"
TRACE_TOPIC_PREFIX: Final = f"{SYSTEM_TOPIC_PREFIX}TRACE_DATA_"
FORBIDDEN_PREFIXES: Final = (REVIVE_TOPIC_PREFIX, MEMBER_TOPIC_PREFIX)
"""Nor to those that begin so, of any cluster or broker. Others that begin with rmq_sys_ hold no
bookkeeping: Java's clients send their traces to rmq_sys_TRACE_DATA_<region>. (RocketMQ lets clients
send to these, too, and believes what it reads there.)"""

SYSTEM_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
"""Groups created at every start with default settings."""

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

_FIXED: Final = (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    SCHEDULE_TOPIC,
    BENCHMARK_TOPIC,
    TRANS_HALF_TOPIC,
    TRACE_TOPIC,
    TRANS_OP_HALF_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_EVENT_TOPIC,
    CHECKPOINT_TOPIC,
)


_INTERNAL: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        ROCKSDB_HALF_TOPIC,
        ROCKSDB_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        OFFSET_MOVED_EVENT_TOPIC,
        CHECKPOINT_TOPIC,
    }
)


def is_internal_topic(topic: str) -> bool:
    """Whether the broker keeps messages of other topics there while they wait, or records of its
    own: nothing that a client reads as such. (Traces are messages of clients for clients.)"""
    if topic.startswith(SYSTEM_TOPIC_PREFIX):
        return not topic.startswith(TRACE_TOPIC_PREFIX)
    return topic in _INTERNAL


class SystemTopics:
    """The system topics of one broker. Names are only added, at start."""

    def __init__(self, *names: str) -> None:
        self._names: dict[str, None] = dict.fromkeys((*_FIXED, *names))

    def add(self, name: str) -> None:
        """Make `name` a system topic."""
        self._names[name] = None

    def names(self) -> list[str]:
        """All of them (305)."""
        return list(self._names)

    def is_system_topic(self, topic: str) -> bool:
        """Whether clients may neither create nor delete it."""
        return topic in self._names or topic.startswith(SYSTEM_TOPIC_PREFIX)

    def check_not_system(self, topic: str) -> None:
        """Raises RequestError(SYSTEM_ERROR) for a system topic (17, 215)."""
        if self.is_system_topic(topic):
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"The topic[{topic}] is conflict with system topic."
            )


def reply_topic(cluster_name: str) -> str:
    """The topic for replies of request-reply."""
    return f"{cluster_name}_{REPLY_TOPIC_POSTFIX}"


def revive_topic(cluster_name: str) -> str:
    """The topic that holds pop's due check points and acks."""
    return REVIVE_TOPIC_PREFIX + cluster_name


def member_topic(broker_name: str) -> str:
    """The topic whose route shows the members of a broker's group."""
    return MEMBER_TOPIC_PREFIX + broker_name


def retry_topic(group: str) -> str:
    """The topic for messages that a group sent back, until they are delivered again."""
    return RETRY_GROUP_TOPIC_PREFIX + group


def dlq_topic(group: str) -> str:
    """The topic for messages that a group failed to consume (dead letters)."""
    return DLQ_GROUP_TOPIC_PREFIX + group


def is_system_group(group: str) -> bool:
    """Whether the group exists even without autoCreateSubscriptionGroup (by prefix or name)."""
    return group.startswith(SYSTEM_GROUP_PREFIX) or group in SYSTEM_GROUPS


def check_send_allowed(topic: str) -> None:
    """Raises RequestError(NO_PERMISSION) for a topic that only the broker writes."""
    if topic in FORBIDDEN_TO_SEND or topic.startswith(FORBIDDEN_PREFIXES):
        raise RequestError(
            ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
        )
