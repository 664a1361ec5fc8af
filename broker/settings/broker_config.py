"""BrokerConfig: the settings of the broker's features, with the original's names and defaults.

Read by the processes of `broker`; filled by `conf.config_loader`, replaced whole when an admin
request changes a key. Kin: org.apache.rocketmq.common.BrokerConfig. The fields are plain values:
what they mean is the business of the services that get this object.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field


def local_address() -> str:
    """The IPv4 address this host uses towards others, 127.0.0.1 where it has none.

    Connecting a datagram socket sends nothing: it only asks the kernel for the route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def default_broker_name() -> str:
    """The host's name, as the original."""
    return socket.gethostname() or "DEFAULT_BROKER"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Keys of BrokerConfig that this broker honours; times in ms."""

    # Who this broker is, and what it is registered as.
    rocketmq_home: str | None = field(
        default=None,
        metadata={"key": "rocketmqHome", "doc": "install directory", "env": "ROCKETMQ_HOME"},
    )
    namesrv_addr: str | None = field(
        default=None,
        metadata={
            "key": "namesrvAddr",
            "doc": "name servers, ip:port, separated by ';'",
            "env": "NAMESRV_ADDR",
            "important": True,
        },
    )
    broker_ip1: str = field(
        default_factory=local_address,
        metadata={
            "key": "brokerIP1",
            "doc": "address that clients get, also in message ids",
            "important": True,
        },
    )
    broker_ip2: str = field(
        default_factory=local_address,
        metadata={
            "key": "brokerIP2",
            "doc": "address that slaves get for the HA port",
            "important": True,
        },
    )
    broker_name: str = field(
        default_factory=default_broker_name,
        metadata={
            "key": "brokerName",
            "doc": "name shared by a master and its slaves",
            "important": True,
        },
    )
    broker_cluster_name: str = field(
        default="DefaultCluster",
        metadata={"key": "brokerClusterName", "doc": "cluster", "important": True},
    )
    broker_id: int = field(
        default=0,
        metadata={
            "key": "brokerId",
            "doc": "0 is the master; masters are forced to it",
            "important": True,
        },
    )
    broker_permission: int = field(
        default=6,
        metadata={"key": "brokerPermission", "doc": "write 2, read 4, both 6", "min": 0, "max": 7},
    )
    region_id: str = field(
        default="DefaultRegion", metadata={"key": "regionId", "doc": "MSG_REGION of send answers"}
    )
    # Who may ask for what (docs/access.md).
    acl_enable: bool = field(
        default=False,
        metadata={
            "key": "aclEnable",
            "doc": "requests are signed by the accounts of conf/plain_acl.yml and conf/acl/*.yml",
            "important": True,
        },
    )
    admin_allowed_addresses: str = field(
        default="127.0.0.0/8,::1",
        metadata={
            "key": "adminAllowedAddresses",
            "doc": "without ACL: where operators may change topics, groups and the like from; "
            "addresses, networks, 10.1.*.*, 10.1.2.3-50, separated by commas (key of ours)",
            "important": True,
        },
    )
    # Topics and groups that come into being by themselves.
    default_topic_queue_nums: int = field(
        default=8,
        metadata={
            "key": "defaultTopicQueueNums",
            "doc": "queues of TBW102, the most an automatic topic gets",
            "min": 1,
            "max": 65536,
        },
    )
    auto_create_topic_enable: bool = field(
        default=True,
        metadata={
            "key": "autoCreateTopicEnable",
            "doc": "unknown topics are created from TBW102",
            "important": True,
        },
    )
    cluster_topic_enable: bool = field(
        default=True,
        metadata={"key": "clusterTopicEnable", "doc": "the topic named as the cluster may be used"},
    )
    broker_topic_enable: bool = field(
        default=True,
        metadata={"key": "brokerTopicEnable", "doc": "the topic named as the broker may be used"},
    )
    auto_create_subscription_group: bool = field(
        default=True,
        metadata={
            "key": "autoCreateSubscriptionGroup",
            "doc": "unknown groups get a default config",
            "important": True,
        },
    )
    trace_topic_enable: bool = field(
        default=False,
        metadata={
            "key": "traceTopicEnable",
            "doc": "create the trace topic here",
            "important": True,
        },
    )
    msg_trace_topic_name: str = field(
        default="RMQ_SYS_TRACE_TOPIC",
        metadata={"key": "msgTraceTopicName", "doc": "name of the trace topic", "important": True},
    )
    trace_on: bool = field(
        default=True, metadata={"key": "traceOn", "doc": "TRACE_ON of send answers"}
    )
    # Sending.
    reject_transaction_message: bool = field(
        default=False,
        metadata={
            "key": "rejectTransactionMessage",
            "doc": "refuse half messages",
            "important": True,
        },
    )
    start_accept_send_request_time_stamp: int = field(
        default=0,
        metadata={
            "key": "startAcceptSendRequestTimeStamp",
            "doc": "sends before this moment are refused",
            "unit": "ms since 1970",
            "min": 0,
        },
    )
    store_reply_message_enable: bool = field(
        default=True,
        metadata={"key": "storeReplyMessageEnable", "doc": "store the answers of request-reply"},
    )
    transaction_time_out: int = field(
        default=6000,
        metadata={
            "key": "transactionTimeOut",
            "doc": "age of a half message before its first check",
            "unit": "ms",
            "min": 0,
            "important": True,
        },
    )
    transaction_check_max: int = field(
        default=15,
        metadata={
            "key": "transactionCheckMax",
            "doc": "checks of one half message",
            "min": 0,
            "important": True,
        },
    )
    transaction_check_interval: int = field(
        default=60000,
        metadata={
            "key": "transactionCheckInterval",
            "doc": "pause between two check rounds",
            "unit": "ms",
            "min": 1,
            "important": True,
        },
    )
    # Pulling.
    long_polling_enable: bool = field(
        default=True,
        metadata={
            "key": "longPollingEnable",
            "doc": "hold a pull that finds nothing, as long as the client asks",
        },
    )
    short_polling_time_mills: int = field(
        default=1000,
        metadata={
            "key": "shortPollingTimeMills",
            "doc": "how long it is held otherwise",
            "unit": "ms",
            "min": 0,
        },
    )
    slave_read_enable: bool = field(
        default=False, metadata={"key": "slaveReadEnable", "doc": "send slow consumers to a slave"}
    )
    notify_consumer_ids_changed_enable: bool = field(
        default=True,
        metadata={
            "key": "notifyConsumerIdsChangedEnable",
            "doc": "tell consumers when their group changes",
        },
    )
    enable_property_filter: bool = field(
        default=False,
        metadata={
            "key": "enablePropertyFilter",
            "doc": "allow SQL92 subscriptions (docs/filters.md)",
            "important": True,
        },
    )
    filter_support_retry: bool = field(
        default=False,
        metadata={
            "key": "filterSupportRetry",
            "doc": "filter the messages of retry topics by properties, too",
        },
    )
    filter_data_clean_time_span: int = field(
        default=86_400_000,
        metadata={
            "key": "filterDataCleanTimeSpan",
            "doc": "how long the filter of a group is kept that is gone",
            "unit": "ms",
            "min": 0,
        },
    )
    expect_consumer_num_use_filter: int = field(
        default=32,
        metadata={
            "key": "expectConsumerNumUseFilter",
            "doc": "filters of one topic that the bit positions in consumerFilter.json are for",
            "min": 1,
            "max": 65536,
        },
    )
    max_error_rate_of_bloom_filter: int = field(
        default=20,
        metadata={
            "key": "maxErrorRateOfBloomFilter",
            "doc": "wanted error rate of these positions; only a Java broker uses them",
            "unit": "percent",
            "min": 1,
            "max": 99,
        },
    )
    flush_consumer_offset_interval: int = field(
        default=5000,
        metadata={
            "key": "flushConsumerOffsetInterval",
            "doc": "pause between two saves of the consumer offsets",
            "unit": "ms",
            "min": 1,
        },
    )
    disable_consume_if_consumer_read_slowly: bool = field(
        default=False,
        metadata={
            "key": "disableConsumeIfConsumerReadSlowly",
            "doc": "stop to serve a group that is too far behind",
        },
    )
    consumer_fallbehind_threshold: int = field(
        default=16 << 30,
        metadata={
            "key": "consumerFallbehindThreshold",
            "doc": "how far that is",
            "unit": "bytes",
            "min": 0,
        },
    )
    # Refusing early when requests wait too long.
    broker_fast_failure_enable: bool = field(
        default=True,
        metadata={
            "key": "brokerFastFailureEnable",
            "doc": "answer SYSTEM_BUSY to requests that waited too long",
        },
    )
    wait_time_mills_in_send_queue: int = field(
        default=200,
        metadata={
            "key": "waitTimeMillsInSendQueue",
            "doc": "limit of a send, and of a message that comes back",
            "unit": "ms",
            "min": 0,
        },
    )
    wait_time_mills_in_heartbeat_queue: int = field(
        default=31000,
        metadata={
            "key": "waitTimeMillsInHeartbeatQueue",
            "doc": "limit of a heartbeat",
            "unit": "ms",
            "min": 0,
        },
    )
    wait_time_mills_in_transaction_queue: int = field(
        default=3000,
        metadata={
            "key": "waitTimeMillsInTransactionQueue",
            "doc": "limit of an end-transaction",
            "unit": "ms",
            "min": 0,
        },
    )
    send_thread_pool_queue_capacity: int = field(
        default=10000,
        metadata={"key": "sendThreadPoolQueueCapacity", "doc": "sends that may wait", "min": 1},
    )
    pull_thread_pool_queue_capacity: int = field(
        default=100000,
        metadata={"key": "pullThreadPoolQueueCapacity", "doc": "pulls that may wait", "min": 1},
    )
    query_thread_pool_queue_capacity: int = field(
        default=20000,
        metadata={"key": "queryThreadPoolQueueCapacity", "doc": "queries that may wait", "min": 1},
    )
    end_transaction_pool_queue_capacity: int = field(
        default=100000,
        metadata={
            "key": "endTransactionPoolQueueCapacity",
            "doc": "end-transactions that may wait",
            "min": 1,
        },
    )
    # Pools run Python: four threads each, where the original has 8 + cores and 16.
    admin_broker_thread_pool_queue_capacity: int = field(
        default=10000,
        metadata={
            "key": "adminBrokerThreadPoolQueueCapacity",
            "doc": "admin requests that may wait (key of 5.x)",
            "min": 1,
        },
    )
    query_message_thread_pool_nums: int = field(
        default=4,
        metadata={
            "key": "queryMessageThreadPoolNums",
            "doc": "threads of queries by key or id",
            "min": 1,
            "max": 256,
        },
    )
    admin_broker_thread_pool_nums: int = field(
        default=4,
        metadata={
            "key": "adminBrokerThreadPoolNums",
            "doc": "threads of admin requests",
            "min": 1,
            "max": 256,
        },
    )
    # Registration at the name servers.
    register_name_server_period: int = field(
        default=30000,
        metadata={
            "key": "registerNameServerPeriod",
            "doc": "pause between two registrations, kept within 10000..60000",
            "unit": "ms",
            "min": 0,
        },
    )
    register_broker_timeout_mills: int = field(
        default=6000,
        metadata={
            "key": "registerBrokerTimeoutMills",
            "doc": "time-out of one registration",
            "unit": "ms",
            "min": 1,
        },
    )
    force_register: bool = field(
        default=True, metadata={"key": "forceRegister", "doc": "register even when nothing changed"}
    )
    compressed_register: bool = field(
        default=False,
        metadata={"key": "compressedRegister", "doc": "compress the registered topic table"},
    )
    # Following a master.
    slave_sync_interval: int = field(
        default=10000,
        metadata={
            "key": "slaveSyncInterval",
            "doc": "pause between two rounds in which a slave takes over its master's tables "
            "(key of ours)",
            "unit": "ms",
            "min": 100,
        },
    )
    # Statistics and run-time changes.
    enable_detail_stat: bool = field(
        default=True, metadata={"key": "enableDetailStat", "doc": "count each queue, too"}
    )
    auto_delete_unused_stats: bool = field(
        default=False,
        metadata={
            "key": "autoDeleteUnusedStats",
            "doc": "drop the counters of a deleted topic or group",
        },
    )
    config_black_list: str = field(
        default="configBlackList;brokerConfigPath",
        metadata={
            "key": "configBlackList",
            "doc": "keys that request 25 may not change, separated by ';'",
        },
    )
