"""BrokerConfig: the settings of the broker's features, with RocketMQ's names and defaults.

Read by the processes of `broker`; filled by `conf.config_loader`, replaced whole when an admin
request changes a key. Kin: org.apache.rocketmq.common.BrokerConfig. The fields are plain values:
what they mean is the business of the services that get this object.

Tested by tests/broker/settings/test_config_update.py.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass

from conf.config_fields import AFTER_RESTART, NOW, computed, setting
from remoting.message_request_mode import MessageRequestMode


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

    # fmt: off
    # Identity and registration.
    rocketmq_home: str | None = setting(None, "install directory", env="ROCKETMQ_HOME")
    namesrv_addr: str | None = setting(None,
        "name servers as ip:port, separated by ';'", env="NAMESRV_ADDR", important=True)
    fetch_namesrv_addr_by_address_server: bool = setting(False,
        "without namesrvAddr: ask an address server for it (docs/name_server_lookup.md); no name "
        "server is embedded then")
    rmq_address_server_domain: str = setting("jmenv.tbsite.net",
        "the address server: host or host:port, by HTTP at port 8080")
    rmq_address_server_sub_group: str = setting("nsaddr", "the last part of its URL")
    fetch_namesrv_addr_interval: int = setting(120_000,
        "pause between two requests to the address server (5.x: 10000)", unit="ms", ge=1_000)
    fetch_name_srv_addr_by_dns_lookup: bool = setting(False,
        "register with every address that the DNS has for the names in namesrvAddr")
    update_name_server_addr_period: int = setting(120_000,
        "pause between two such look-ups", unit="ms", ge=1_000)
    broker_ip1: str = setting(computed(local_address, "this host's address"),
        "address given to clients, also part of message ids", key="brokerIP1", important=True)
    broker_ip2: str = setting(computed(local_address, "this host's address"),
        "address given to slaves for the HA port", key="brokerIP2", important=True)
    broker_name: str = setting(computed(default_broker_name, "the host's name"),
        "name of the group: a master and its slaves share it", important=True)
    broker_cluster_name: str = setting("DefaultCluster", "name of the cluster", important=True)
    broker_id: int = setting(0,
        "0 for a master, which always has 0; a slave's own number above 0", important=True)
    broker_permission: int = setting(6,
        "2: writable, 4: readable, 6: both", ge=0, le=7, changeable=NOW)
    region_id: str = setting("DefaultRegion", "MSG_REGION in send responses")
    # Access control (docs/access.md).
    acl_enable: bool = setting(False,
        "require signatures of accounts in conf/plain_acl.yml or conf/acl/*.yml", important=True)
    admin_allowed_addresses: str = setting("127.0.0.0/8,::1",
        "without ACL, where administrative requests may come from: addresses, networks, 10.1.*.*, "
        "10.1.2.3-50, separated by commas", important=True)
    register_allowed_addresses: str = setting("",
        "of the embedded name server: peers that may register brokers at addresses other than "
        "their own (NAT, containers, hosts with several addresses), in the same syntax; * for "
        "everybody, as in RocketMQ")
    acl_admin_allowed_addresses: str = setting("*",
        "with ACL, where administrative requests may come from: an admin's signature, which they "
        "need as well, covers neither code nor time; name the slaves that copy access files, too")
    # Automatic creation of topics and groups.
    default_topic_queue_nums: int = setting(8,
        "queues of TBW102, the maximum for automatically created topics",
        ge=1, le=65536, changeable=AFTER_RESTART)
    auto_create_topic_enable: bool = setting(True,
        "create unknown topics from the template TBW102", important=True, changeable=NOW)
    enable_mixed_message_type: bool = setting(False,
        "allow topics with the attribute message.type=MIXED", changeable=NOW)
    cluster_topic_enable: bool = setting(True,
        "allow the use of the topic named like the cluster", changeable=AFTER_RESTART)
    broker_topic_enable: bool = setting(True,
        "allow the use of the topic named like the broker", changeable=AFTER_RESTART)
    auto_create_subscription_group: bool = setting(True,
        "create unknown groups with default settings", important=True, changeable=NOW)
    heartbeat_max_groups: int = setting(1000,
        "most groups, of producers and consumers, in one heartbeat", ge=1, changeable=NOW)
    trace_topic_enable: bool = setting(False,
        "create the trace topic on this broker", important=True, changeable=AFTER_RESTART)
    msg_trace_topic_name: str = setting("RMQ_SYS_TRACE_TOPIC",
        "name of the trace topic", important=True)
    trace_on: bool = setting(True, "TRACE_ON in send responses", changeable=AFTER_RESTART)
    # Sending.
    reject_transaction_message: bool = setting(False,
        "reject half messages", important=True, changeable=AFTER_RESTART)
    start_accept_send_request_time_stamp: int = setting(0,
        "reject sends before this time", unit="ms since 1970", ge=0, changeable=AFTER_RESTART)
    store_reply_message_enable: bool = setting(True,
        "store the replies of request-reply", changeable=AFTER_RESTART)
    transaction_time_out: int = setting(6000,
        "age of a half message at its first check",
        unit="ms", ge=0, important=True, changeable=AFTER_RESTART)
    transaction_check_max: int = setting(15,
        "most checks of a half message", ge=0, important=True, changeable=AFTER_RESTART)
    transaction_check_interval: int = setting(60000,
        "pause between check rounds", unit="ms", ge=1, important=True, changeable=AFTER_RESTART)
    # Pulling.
    long_polling_enable: bool = setting(True,
        "hold a pull that finds nothing for as long as the client asks", changeable=NOW)
    short_polling_time_mills: int = setting(1000,
        "how long it is held with longPollingEnable=false", unit="ms", ge=0, changeable=NOW)
    slave_read_enable: bool = setting(False,
        "suggest a slave to consumers that are far behind", changeable=NOW)
    cold_ctr_strategy_enable: bool = setting(False,
        "with coldDataFlowControlEnable: move the thresholds of groups that no operator has set",
        changeable=NOW)
    use_pid_cold_ctr_strategy: bool = setting(True,
        "by a PID controller that aims at 80 % of globalColdReadThreshold; false: up by half, down "
        "by a fifth", key="usePIDColdCtrStrategy")
    cg_cold_read_threshold: int = setting(3 << 20,
        "cold data that one group reads in 5 s before it is slowed", unit="bytes", changeable=NOW)
    global_cold_read_threshold: int = setting(100 << 20,
        "cold data that all groups read in 5 s before all that read cold data are slowed",
        unit="bytes", changeable=NOW)
    notify_consumer_ids_changed_enable: bool = setting(True,
        "notify consumers when their group changes", changeable=AFTER_RESTART)
    enable_property_filter: bool = setting(False,
        "allow SQL92 filters (docs/filters.md)", important=True, changeable=AFTER_RESTART)
    filter_support_retry: bool = setting(False,
        "filter messages of retry topics by their properties, too")
    filter_data_clean_time_span: int = setting(86_400_000,
        "how long the filters of a vanished group are kept", unit="ms", ge=0)
    expect_consumer_num_use_filter: int = setting(32,
        "filters of a topic for which consumerFilter.json has bit positions", ge=1, le=65536)
    max_error_rate_of_bloom_filter: int = setting(20,
        "error rate of these positions (only Java brokers use them)", unit="percent", ge=1, le=99)
    flush_consumer_offset_interval: int = setting(5000,
        "pause between saves of consumer offsets", unit="ms", ge=1, changeable=AFTER_RESTART)
    disable_consume_if_consumer_read_slowly: bool = setting(False,
        "stop serving a group that is too far behind")
    consumer_fallbehind_threshold: int = setting(16 << 30,
        "lag from which a group is too far behind", unit="bytes", ge=0)
    # Rejecting requests that have waited too long.
    broker_fast_failure_enable: bool = setting(True,
        "answer SYSTEM_BUSY to requests that have waited too long", changeable=AFTER_RESTART)
    wait_time_mills_in_send_queue: int = setting(200,
        "longest wait of a send or of a message sent back",
        unit="ms", ge=0, changeable=AFTER_RESTART)
    wait_time_mills_in_heartbeat_queue: int = setting(31000,
        "longest wait of a heartbeat", unit="ms", ge=0, changeable=AFTER_RESTART)
    wait_time_mills_in_transaction_queue: int = setting(3000,
        "longest wait of an end-transaction request", unit="ms", ge=0, changeable=AFTER_RESTART)
    send_thread_pool_queue_capacity: int = setting(10000,
        "most sends waiting", ge=1, changeable=AFTER_RESTART)
    pull_thread_pool_queue_capacity: int = setting(100000,
        "most pulls waiting", ge=1, changeable=AFTER_RESTART)
    query_thread_pool_queue_capacity: int = setting(20000,
        "most queries waiting", ge=1, changeable=AFTER_RESTART)
    end_transaction_pool_queue_capacity: int = setting(100000,
        "most end-transaction requests waiting", ge=1, changeable=AFTER_RESTART)
    # Pools run Python: four threads each, where RocketMQ has 8 + cores and 16.
    admin_broker_thread_pool_queue_capacity: int = setting(10000,
        "most administrative requests waiting", ge=1, changeable=AFTER_RESTART)
    query_message_thread_pool_nums: int = setting(4,
        "threads for queries by key or id", ge=1, le=256, changeable=AFTER_RESTART)
    admin_broker_thread_pool_nums: int = setting(4,
        "threads for administrative requests", ge=1, le=256, changeable=AFTER_RESTART)
    # Registration at the name servers.
    register_name_server_period: int = setting(30000,
        "pause between registrations, kept within 10000..60000",
        unit="ms", ge=0, changeable=AFTER_RESTART)
    register_broker_timeout_mills: int = setting(6000,
        "timeout of a registration", unit="ms", ge=1, changeable=NOW)
    force_register: bool = setting(True, "register even if nothing has changed", changeable=NOW)
    compressed_register: bool = setting(False,
        "compress the topic table in registrations", changeable=NOW)
    # Following a master.
    slave_sync_interval: int = setting(10000,
        "pause between a slave's copies of its master's tables",
        unit="ms", ge=100, changeable=AFTER_RESTART)
    # A slave that acts as master (docs/replication.md).
    enable_slave_acting_master: bool = setting(False,
        "of all brokers of a group, where name servers support it: while the group has no master, "
        "its slave with the smallest brokerId is read, locked and asked in its place",
        important=True)
    enable_remote_escape: bool = setting(False,
        "with enableSlaveActingMaster: an acting slave delivers due delayed messages (messages of "
        "a delay level) to other masters of the cluster; false: they wait for the master")
    total_replicas: int = setting(1,
        "with enableSlaveActingMaster: brokers of the group; above 1 a broker starts isolated, "
        "neither registered nor writable, until the replicas that are registered are linked", ge=1)
    skip_pre_online: bool = setting(False,
        "totalReplicas isolates nobody: every broker registers as soon as it has started")
    pre_online_max_wait: int = setting(60_000,
        "a broker that is isolated comes online after this time without those that it waits for; "
        "0: never", unit="ms", ge=0)
    broker_not_active_timeout_millis: int = setting(10_000,
        "with enableSlaveActingMaster: name servers drop this broker when it is silent for longer",
        unit="ms", ge=1)
    broker_heartbeat_interval: int = setting(1000,
        "with enableSlaveActingMaster: pause between heartbeats to the name servers",
        unit="ms", ge=100)
    send_heartbeat_timeout_millis: int = setting(1000,
        "timeout of such a heartbeat", unit="ms", ge=1)
    sync_broker_member_group_period: int = setting(1000,
        "with enableSlaveActingMaster: pause between a slave's requests for its group's members",
        unit="ms", ge=100)
    compatible_with_old_name_srv: bool = setting(True,
        "send heartbeats and these requests with codes that 4.9 name servers know, too (322, "
        "106); false: with those of 5.x (904, 901)")
    support_acting_master: bool = setting(False,
        "of the embedded name server: show an acting slave as its group's id 0 in routes")
    notify_min_broker_id_changed: bool = setting(False,
        "of the embedded name server: tell brokers when their group's smallest id changes")
    enable_split_metadata: bool = setting(True,
        "answer 21 and 201 page by page to peers that ask so (5.5)", changeable=AFTER_RESTART)
    split_metadata_size: int = setting(2000,
        "topics or groups of such a page at most", ge=1, changeable=AFTER_RESTART)
    batch_delete_topic_max_rate: float = setting(10.0,
        "topics a second that a list of them (5002) deletes; 0: all at once", ge=0, changeable=NOW)
    batch_delete_subscription_group_max_rate: float = setting(10.0,
        "the same of groups (5003)", ge=0, changeable=NOW)
    # Pop consumption.
    revive_queue_num: int = setting(8,
        "queues of the topic of pop's check points and acks", ge=1, le=998)
    enable_pop_buffer_merge: bool = setting(True,
        "match pops and acks in memory and in popjournal; false stores each pop's check point and "
        "each ack (RocketMQ's default is false)", important=True, changeable=NOW)
    pop_ck_stay_buffer_time: int = setting(10_000,
        "a pop that is not fully acknowledged by then is stored", unit="ms", ge=0)
    pop_ck_stay_buffer_time_out: int = setting(3_000,
        "and this long before its messages become visible again", unit="ms", ge=0)
    pop_ck_max_buffer_size: int = setting(200_000,
        "pops that popjournal has room for, 200 bytes each", ge=1, le=10_000_000)
    pop_ck_offset_max_queue_size: int = setting(20_000,
        "pops of one queue by one group that are open at a time", ge=1)
    pop_from_retry_probability: int = setting(20,
        "% of pops that look into the retry topic first", ge=0, le=100)
    pop_from_retry_probability_for_priority: int = setting(0,
        "the same of pops of a PRIORITY topic that begin with its highest queue", ge=0, le=100,
        changeable=NOW)
    priority_order_asc: bool = setting(True,
        "pops look into a topic's queues from the highest id down, so that a higher priority comes "
        "first; false: from the lowest up, and 0 comes first", changeable=NOW)
    use_separate_retry_queue: bool = setting(False,
        "pop's retry topics have as many queues as their topic: a retried message keeps its "
        "priority", changeable=NOW)
    enable_retry_topic_v2: bool = setting(False,
        "name pop's retry topics %RETRY%group+topic instead of %RETRY%group_topic")
    retrieve_message_from_pop_retry_topic_v1: bool = setting(True,
        "with enableRetryTopicV2, half of the pops still read the old retry topic")
    pop_response_return_actual_retry_topic: bool = setting(False,
        "hand out messages of a retry topic under its name, not under that of the topic")
    init_pop_offset_by_check_msg_in_mem: bool = setting(True,
        "a new group starts at the first message of a queue that is still in memory")
    enable_pop_message_threshold: bool = setting(False,
        "stop pops of a queue above popInflightMessageThreshold")
    pop_inflight_message_threshold: int = setting(10_000,
        "messages of a queue handed out to a group at a time", ge=0)
    pop_polling_size: int = setting(1024,
        "waiting requests of one group for one queue, or for any queue of a topic", ge=1)
    pop_polling_map_size: int = setting(100_000,
        "groups and queues that requests may wait for", ge=1)
    max_pop_polling_size: int = setting(100_000, "waiting pops, and notifications", ge=1)
    use_message_filter_for_notification: bool = setting(True,
        "tell a group that there is something to pop (200054) only if its filter takes it",
        changeable=NOW)
    max_message_filter_num_for_notification: int = setting(64,
        "and if fewer messages than this are left; more are told unread", ge=0, le=800,
        changeable=NOW)
    enable_notify_after_pop_order_lock_release: bool = setting(True,
        "wake a waiting ordered pop when the queue is free again", changeable=NOW)
    revive_interval: int = setting(100,
        "pause between two passes over the revive topic (RocketMQ: 1000)", unit="ms", ge=10)
    skip_when_ck_re_put_reach_max_times: bool = setting(False,
        "give up on a message that could not be copied to the retry topic 17 times; false: keep "
        "trying every two hours", key="skipWhenCKRePutReachMaxTimes")
    default_message_request_mode: MessageRequestMode = setting(MessageRequestMode.PULL,
        "PULL or POP: how groups get messages whose broker balances the load")
    default_pop_share_queue_num: int = setting(-1,
        "with POP, of how many other members a member shares the queues; below 1: of all")
    server_load_balancer_enable: bool = setting(True,
        "answer request 400 with a member's share; false: with all queues")
    # Timers.
    recall_message_enable: bool = setting(False,
        "messages that wait for their time can be recalled (370)", changeable=NOW)
    allow_recall_when_broker_not_writeable: bool = setting(True,
        "recalls are served even if brokerPermission forbids to write", changeable=NOW)
    recall_by_property_enable: bool = setting(False,
        "a client may also recall a message of a topic by a timer message of its own for that "
        "topic, with the property TIMER_DEL_UNIQKEY; false: such a message is refused (13)")
    # Statistics and changes at run time.
    enable_detail_stat: bool = setting(True,
        "keep statistics for each queue, too", changeable=AFTER_RESTART)
    enable_broadcast_offset_store: bool = setting(True,
        "follow how far each client of a broadcasting group has pulled, so that it may move to a "
        "proxy of 5.x and back")
    broadcast_offset_expire_second: int = setting(120,
        "time after which an offline broadcasting client is forgotten", unit="s", ge=1)
    broadcast_offset_expire_max_second: int = setting(300,
        "the same for one that is online", unit="s", ge=1)
    forward_timeout: int = setting(3000,
        "how long to wait for the other broker when it keeps what is asked about a static topic",
        unit="ms", ge=1, changeable=AFTER_RESTART)
    use_server_side_reset_offset: bool = setting(False,
        "a reset of a group's offsets (222) is stored here and passed to the next pulls, as 5.3 "
        "does by default; without it the group's members are notified (220)", changeable=NOW)
    max_lite_subscription_count: int = setting(100_000,
        "subscriptions of lite topics by clients, and those clients, at a time", ge=1,
        changeable=NOW)
    max_client_event_count: int = setting(100,
        "lite topics with something for one client, before another of its group is preferred; of "
        "groups without lite.sub.client.max.event.cnt", ge=1, changeable=NOW)
    lite_event_check_interval: int = setting(10_000,
        "how often it is looked for clients that fetch nothing of their lite topics", unit="ms",
        ge=100)
    lite_subscription_check_interval: int = setting(120_000,
        "how often it is looked for clients that do not repeat their subscriptions", unit="ms",
        ge=100)
    lite_subscription_check_timeout_mills: int = setting(180_000,
        "how long such a client keeps them", unit="ms", ge=1_000, changeable=NOW)
    lite_ttl_check_interval: int = setting(120_000,
        "how often lite topics whose lite.topic.expiration is over are deleted", unit="ms", ge=100)
    min_lite_ttl: int = setting(900_000,
        "no lite topic is deleted sooner after its last message, or after a start", unit="ms",
        ge=0, key="minLiteTTl", changeable=NOW)
    lite_lag_latency_collect_enable: bool = setting(False,
        "mqadmin getLiteGroupInfo shows the lite topics whose oldest message waits longest",
        changeable=NOW)
    lite_lag_latency_top_k: int = setting(50, "most of these", ge=1, changeable=NOW)
    lite_lag_count_metrics_enable: bool = setting(False,
        "lite groups have the metrics consumer_lag_messages and consumer_ready_messages",
        changeable=NOW)
    lite_lag_latency_metrics_enable: bool = setting(False,
        "lite groups have the metric consumer_lag_latency_milliseconds", changeable=NOW)
    enable_lmq_stats: bool = setting(False,
        "with enableLmq: keep statistics for each light queue and group, not for all together",
        changeable=AFTER_RESTART)
    auto_delete_unused_stats: bool = setting(False,
        "drop the statistics of a deleted topic or group", changeable=AFTER_RESTART)
    config_black_list: str = setting("configBlackList;brokerConfigPath",
        "keys that request 25 must not change, separated by ';'")
    # fmt: on

    @property
    def page_limit(self) -> int:
        """Names of a page of topics or groups at most (processor/table_pages.py); 0: no pages."""
        return self.split_metadata_size if self.enable_split_metadata else 0

    @property
    def begins_isolated(self) -> bool:
        """Whether the broker registers, and takes messages, only once its group is linked
        (slave/pre_online.py)."""
        return (
            self.enable_slave_acting_master and self.total_replicas > 1 and not self.skip_pre_online
        )
