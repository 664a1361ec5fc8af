"""BrokerConfig: the settings of the broker's features, with RocketMQ's names and defaults.

Read by the processes of `broker`; filled by `conf.config_loader`, replaced whole when an admin
request changes a key. Kin: org.apache.rocketmq.common.BrokerConfig. The fields are plain values:
what they mean is the business of the services that get this object.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

from conf.config_fields import AFTER_RESTART, NOW, computed, setting


def local_address() -> str:
    """The IPv4 address from which this host reaches others; 127.0.0.1 without a network.

    Connecting a datagram socket sends nothing; the kernel only looks up the route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def default_broker_name() -> str:
    """The host's name, as in RocketMQ."""
    return socket.gethostname() or "DEFAULT_BROKER"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """The keys of BrokerConfig that this broker honours."""

    # Identity and registration.
    rocketmq_home: str | None = setting(None, "install directory", env="ROCKETMQ_HOME")
    namesrv_addr: str | None = setting(
        None, "name servers as ip:port, separated by ';'", env="NAMESRV_ADDR", important=True
    )
    broker_ip1: str = setting(
        computed(local_address, "this host's address"),
        "address given to clients, also part of message ids",
        key="brokerIP1",
        important=True,
    )
    broker_ip2: str = setting(
        computed(local_address, "this host's address"),
        "address given to slaves for the HA port",
        key="brokerIP2",
        important=True,
    )
    broker_name: str = setting(
        computed(default_broker_name, "the host's name"),
        "name of the group: a master and its slaves share it",
        important=True,
    )
    broker_cluster_name: str = setting("DefaultCluster", "name of the cluster", important=True)
    broker_id: int = setting(
        0, "0 for a master, which always has 0; a slave's own number above 0", important=True
    )
    broker_permission: int = setting(
        6, "2: writable, 4: readable, 6: both", ge=0, le=7, changeable=NOW
    )
    region_id: str = setting("DefaultRegion", "MSG_REGION in send responses")
    # Access control (docs/access.md).
    acl_enable: bool = setting(
        False,
        "require signatures of accounts in conf/plain_acl.yml or conf/acl/*.yml",
        important=True,
    )
    admin_allowed_addresses: str = setting(
        "127.0.0.0/8,::1",
        "without ACL, where administrative requests may come from: addresses, networks, "
        "10.1.*.*, 10.1.2.3-50, separated by commas",
        important=True,
    )
    acl_admin_allowed_addresses: str = setting(
        "*",
        "with ACL, where administrative requests may come from besides being signed by an admin, "
        "since a signature covers neither code nor time; the slaves that copy access files, too",
    )
    # Automatic creation of topics and groups.
    default_topic_queue_nums: int = setting(
        8,
        "queues of TBW102, the maximum for automatically created topics",
        ge=1,
        le=65536,
        changeable=AFTER_RESTART,
    )
    auto_create_topic_enable: bool = setting(
        True, "create unknown topics from the template TBW102", important=True, changeable=NOW
    )
    cluster_topic_enable: bool = setting(
        True, "allow the use of the topic named like the cluster", changeable=AFTER_RESTART
    )
    broker_topic_enable: bool = setting(
        True, "allow the use of the topic named like the broker", changeable=AFTER_RESTART
    )
    auto_create_subscription_group: bool = setting(
        True, "create unknown groups with default settings", important=True, changeable=NOW
    )
    heartbeat_max_groups: int = setting(
        1000, "most groups, of producers and consumers, in one heartbeat", ge=1, changeable=NOW
    )
    trace_topic_enable: bool = setting(
        False, "create the trace topic on this broker", important=True, changeable=AFTER_RESTART
    )
    msg_trace_topic_name: str = setting(
        "RMQ_SYS_TRACE_TOPIC", "name of the trace topic", important=True
    )
    trace_on: bool = setting(True, "TRACE_ON in send responses", changeable=AFTER_RESTART)
    # Sending.
    reject_transaction_message: bool = setting(
        False, "reject half messages", important=True, changeable=AFTER_RESTART
    )
    start_accept_send_request_time_stamp: int = setting(
        0, "reject sends before this time", unit="ms since 1970", ge=0, changeable=AFTER_RESTART
    )
    store_reply_message_enable: bool = setting(
        True, "store the replies of request-reply", changeable=AFTER_RESTART
    )
    transaction_time_out: int = setting(
        6000,
        "age of a half message at its first check",
        unit="ms",
        ge=0,
        important=True,
        changeable=AFTER_RESTART,
    )
    transaction_check_max: int = setting(
        15, "most checks of a half message", ge=0, important=True, changeable=AFTER_RESTART
    )
    transaction_check_interval: int = setting(
        60000,
        "pause between check rounds",
        unit="ms",
        ge=1,
        important=True,
        changeable=AFTER_RESTART,
    )
    # Pulling.
    long_polling_enable: bool = setting(
        True, "hold a pull that finds nothing for as long as the client asks", changeable=NOW
    )
    short_polling_time_mills: int = setting(
        1000, "how long it is held with longPollingEnable=false", unit="ms", ge=0, changeable=NOW
    )
    slave_read_enable: bool = setting(
        False, "suggest a slave to consumers that are far behind", changeable=NOW
    )
    notify_consumer_ids_changed_enable: bool = setting(
        True, "notify consumers when their group changes", changeable=AFTER_RESTART
    )
    enable_property_filter: bool = setting(
        False, "allow SQL92 filters (docs/filters.md)", important=True, changeable=AFTER_RESTART
    )
    filter_support_retry: bool = setting(
        False, "filter messages of retry topics by their properties, too"
    )
    filter_data_clean_time_span: int = setting(
        86_400_000, "how long the filters of a vanished group are kept", unit="ms", ge=0
    )
    expect_consumer_num_use_filter: int = setting(
        32, "filters of a topic for which consumerFilter.json has bit positions", ge=1, le=65536
    )
    max_error_rate_of_bloom_filter: int = setting(
        20,
        "error rate of these positions (only Java brokers use them)",
        unit="percent",
        ge=1,
        le=99,
    )
    flush_consumer_offset_interval: int = setting(
        5000, "pause between saves of consumer offsets", unit="ms", ge=1, changeable=AFTER_RESTART
    )
    disable_consume_if_consumer_read_slowly: bool = setting(
        False, "stop serving a group that is too far behind"
    )
    consumer_fallbehind_threshold: int = setting(
        16 << 30, "lag from which a group is too far behind", unit="bytes", ge=0
    )
    # Rejecting requests that have waited too long.
    broker_fast_failure_enable: bool = setting(
        True, "answer SYSTEM_BUSY to requests that have waited too long", changeable=AFTER_RESTART
    )
    wait_time_mills_in_send_queue: int = setting(
        200,
        "longest wait of a send or of a message sent back",
        unit="ms",
        ge=0,
        changeable=AFTER_RESTART,
    )
    wait_time_mills_in_heartbeat_queue: int = setting(
        31000, "longest wait of a heartbeat", unit="ms", ge=0, changeable=AFTER_RESTART
    )
    wait_time_mills_in_transaction_queue: int = setting(
        3000,
        "longest wait of an end-transaction request",
        unit="ms",
        ge=0,
        changeable=AFTER_RESTART,
    )
    send_thread_pool_queue_capacity: int = setting(
        10000, "most sends waiting", ge=1, changeable=AFTER_RESTART
    )
    pull_thread_pool_queue_capacity: int = setting(
        100000, "most pulls waiting", ge=1, changeable=AFTER_RESTART
    )
    query_thread_pool_queue_capacity: int = setting(
        20000, "most queries waiting", ge=1, changeable=AFTER_RESTART
    )
    end_transaction_pool_queue_capacity: int = setting(
        100000, "most end-transaction requests waiting", ge=1, changeable=AFTER_RESTART
    )
    # Pools run Python: four threads each, where RocketMQ has 8 + cores and 16.
    admin_broker_thread_pool_queue_capacity: int = setting(
        10000, "most administrative requests waiting", ge=1, changeable=AFTER_RESTART
    )
    query_message_thread_pool_nums: int = setting(
        4, "threads for queries by key or id", ge=1, le=256, changeable=AFTER_RESTART
    )
    admin_broker_thread_pool_nums: int = setting(
        4, "threads for administrative requests", ge=1, le=256, changeable=AFTER_RESTART
    )
    # Registration at the name servers.
    register_name_server_period: int = setting(
        30000,
        "pause between registrations, kept within 10000..60000",
        unit="ms",
        ge=0,
        changeable=AFTER_RESTART,
    )
    register_broker_timeout_mills: int = setting(
        6000, "timeout of a registration", unit="ms", ge=1, changeable=NOW
    )
    force_register: bool = setting(True, "register even if nothing has changed", changeable=NOW)
    compressed_register: bool = setting(
        False, "compress the topic table in registrations", changeable=NOW
    )
    # Following a master.
    slave_sync_interval: int = setting(
        10000,
        "pause between a slave's copies of its master's tables",
        unit="ms",
        ge=100,
        changeable=AFTER_RESTART,
    )
    # Statistics and changes at run time.
    enable_detail_stat: bool = setting(
        True, "keep statistics for each queue, too", changeable=AFTER_RESTART
    )
    auto_delete_unused_stats: bool = setting(
        False, "drop the statistics of a deleted topic or group", changeable=AFTER_RESTART
    )
    config_black_list: str = setting(
        "configBlackList;brokerConfigPath", "keys that request 25 must not change, separated by ';'"
    )
