"""Every command of mqadmin: its name, one line about it, and the module that holds it.

Pure data, so that the list of commands and the search for a misspelt one import no command.
Names and order by subject are RocketMQ's (Java: MQAdminStartup).
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Entry(NamedTuple):
    """One command; `module` lies in tools.commands and holds a click command of this name."""

    module: str
    description: str


COMMANDS: Final[dict[str, Entry]] = {
    "updateTopic": Entry("topic_admin", "Update or create topic"),
    "updateTopicList": Entry("config_lists", "Update or create the topics of a file"),
    "deleteTopic": Entry("topic_admin", "Delete topic from broker and name servers (asks)"),
    "updateTopicPerm": Entry("topic_admin", "Update the permissions of a topic"),
    "updateOrderConf": Entry("topic_admin", "Show, set or delete an order conf (asks)"),
    "updateStaticTopic": Entry("static_topic", "Create a static topic or add queues to it"),
    "remappingStaticTopic": Entry("static_topic", "Share a static topic's queues among brokers"),
    "updateSubGroup": Entry("group_admin", "Update or create subscription group"),
    "updateSubGroupList": Entry("config_lists", "Update or create the groups of a file"),
    "setConsumeMode": Entry("group_admin", "Have a group pull queues of its own, or pop"),
    "getConsumerConfig": Entry("group_admin", "Show the settings of a subscription group"),
    "deleteSubGroup": Entry("group_admin", "Delete subscription group from broker (asks)"),
    "topicList": Entry("topic", "List all topics of the name server"),
    "topicRoute": Entry("topic", "Show the route of a topic"),
    "topicStatus": Entry("topic", "Show the offsets of each queue of a topic"),
    "topicClusterList": Entry("topic", "Show the clusters that have a topic"),
    "allocateMQ": Entry("topic", "Show how the queues of a topic would be allocated"),
    "brokerStatus": Entry("broker", "Show the runtime statistics of brokers"),
    "getBrokerConfig": Entry("broker", "Show the settings of brokers"),
    "updateBrokerConfig": Entry("broker", "Change a setting of brokers"),
    "brokerConsumeStats": Entry("consumer_progress", "Show all groups' progress at one broker"),
    "cleanExpiredCQ": Entry("broker", "Delete expired consume queue files (asks)"),
    "cleanUnusedTopic": Entry("broker", "Delete the queues of deleted topics (asks)"),
    "deleteExpiredCommitLog": Entry("broker", "Delete expired commit log files (asks)"),
    "updateColdDataFlowCtrGroupConfig": Entry("cold_data", "Limit how much old data a group reads"),
    "removeColdDataFlowCtrGroupConfig": Entry("cold_data", "Remove a group's own limit of that"),
    "getColdDataFlowCtrInfo": Entry("cold_data", "Show which groups read old data, and limits"),
    "setCommitLogReadAheadMode": Entry("cold_data", "Let the kernel read ahead in the commit log"),
    "sendMsgStatus": Entry("message_send", "Send messages to one broker, show each result"),
    "queryMsgById": Entry("message_query", "Show a message by its offset id"),
    "queryMsgByKey": Entry("message_query", "List messages by key"),
    "queryMsgByUniqueKey": Entry("message_query", "Show a message by its unique key"),
    "queryMsgByOffset": Entry("message_query", "Show a message by queue and offset"),
    "queryMsgTraceById": Entry("message_query", "Show who sent and who consumed a message"),
    "queryCq": Entry("topic", "Show the entries of a consume queue"),
    "printMsg": Entry("message_read", "Print the messages of a topic"),
    "printMsgByQueue": Entry("message_read", "Print or count the messages of one queue"),
    "listDlq": Entry("dead_letters", "List the dead letters of a group, or count all groups'"),
    "resendDlq": Entry("dead_letters", "Send dead letters of a group again (asks)"),
    "exportDlq": Entry("dead_letters", "Write the dead letters of a group to a file"),
    "sendMessage": Entry("message_send", "Send a message"),
    "consumeMessage": Entry("message_read", "Read messages without moving any offset"),
    "producerConnection": Entry("connection", "Show the connections of a producer group"),
    "producer": Entry("connection", "Show all producers of one broker"),
    "consumerConnection": Entry("connection", "Show the connections of a consumer group"),
    "consumerProgress": Entry("consumer_progress", "Show the progress and lag of consumer groups"),
    "consumerStatus": Entry("consumer_status", "Show the running info of consumers"),
    "startMonitoring": Entry("monitoring", "Monitor all groups, once a minute"),
    "resetOffsetByTime": Entry("offset", "Reset the offsets of a group to a time (asks)"),
    "skipAccumulatedMessage": Entry(
        "offset", "Skip the messages that a group has not consumed (asks)"
    ),
    "cloneGroupOffset": Entry("offset", "Copy the offsets of a group to another (asks)"),
    "haStatus": Entry("ha_status", "Show the replication status of brokers"),
    "resetMasterFlushOffset": Entry("ha_status", "Reset the master's flush offset at a slave"),
    "adminAudit": Entry("admin_audit", "Show what operators changed at a broker of ours"),
    "verifyReplica": Entry("verify_replica", "Read commit logs again, compare them with replicas"),
    "clusterList": Entry("cluster", "List all clusters with their brokers"),
    "clusterRT": Entry("message_send", "Measure the response time of each broker of a cluster"),
    "checkMsgSendRT": Entry("message_send", "Measure the response time of sends to a topic"),
    "statsAll": Entry("stats", "Show rates and backlog of topics and groups"),
    "updateKvConfig": Entry("namesrv", "Create or update a name server's KV setting"),
    "deleteKvConfig": Entry("namesrv", "Delete a name server's KV setting (asks)"),
    "wipeWritePerm": Entry("namesrv", "Remove a broker's write permission in all name servers"),
    "addWritePerm": Entry("namesrv", "Restore a broker's write permission in all name servers"),
    "getNamesrvConfig": Entry("namesrv", "Show the settings of name servers"),
    "updateNamesrvConfig": Entry("namesrv", "Change a setting of all name servers"),
    "addBroker": Entry("container", "Add a broker to specified container"),
    "removeBroker": Entry("container", "Remove a broker from specified container"),
    "updateAclConfig": Entry("acl", "Create or update an account of brokers"),
    "deleteAclConfig": Entry("acl", "Delete an account of brokers (asks)"),
    "clusterAclConfigVersion": Entry("acl", "Show the versions of access control files"),
    "updateGlobalWhiteAddr": Entry("acl", "Replace the global white list of brokers"),
    "createUser": Entry("auth", "Create a user of brokers"),
    "updateUser": Entry("auth", "Change a user of brokers"),
    "deleteUser": Entry("auth", "Delete a user of brokers (asks)"),
    "getUser": Entry("auth", "Show a user of brokers"),
    "listUser": Entry("auth", "List the users of brokers"),
    "copyUser": Entry("auth", "Copy users from one broker to another"),
    "createAcl": Entry("auth", "Give a user rights"),
    "updateAcl": Entry("auth", "Change the rights of a user"),
    "deleteAcl": Entry("auth", "Delete rights of a user (asks)"),
    "getAcl": Entry("auth", "Show the rights of a user"),
    "listAcl": Entry("auth", "List the rights of users"),
    "copyAcl": Entry("auth", "Copy rights from one broker to another"),
    "getBrokerLiteInfo": Entry("lite", "Show how much of lite topics brokers have"),
    "getParentTopicInfo": Entry("lite", "Show the lite topics and groups of a parent topic"),
    "getLiteTopicInfo": Entry("lite", "Show the offsets and subscribers of a lite topic"),
    "getLiteClientInfo": Entry("lite", "Show what a client of a lite group subscribes"),
    "getLiteGroupInfo": Entry("lite", "Show what a lite group has not consumed"),
    "triggerLiteDispatch": Entry("lite", "Have brokers look at a lite group's topics again"),
    "exportMetadata": Entry("export", "Write topics and groups to a file"),
    "exportConfigs": Entry("export", "Write the settings of a cluster to a file"),
    "exportMetrics": Entry("export", "Write the load of a cluster to a file"),
    "exportPopRecord": Entry("rocksdb", "Move pop's records out of the KV store of Java brokers"),
    "getSyncStateSet": Entry("controller", "Show which replicas a controller counts as in sync"),
    "getBrokerEpoch": Entry("controller", "Show which part of its log each master wrote"),
    "getControllerMetaData": Entry("controller", "Show the controllers and their leader"),
    "getControllerConfig": Entry("controller", "Show the settings of controllers"),
    "updateControllerConfig": Entry("controller", "Change a setting of controllers"),
    "electMaster": Entry("controller", "Have a controller make a broker the master"),
    "cleanBrokerMetadata": Entry("controller", "Have a controller forget brokers (asks)"),
    "dumpCompactionLog": Entry("compaction_log", "Print the messages of a compaction log's file"),
    "rocksDBConfigToJson": Entry("rocksdb", "Have Java brokers export RocksDB's config as JSON"),
    "exportMetadataInRocksDB": Entry("rocksdb", "Read RocksDB's config: refused here"),
    "checkRocksdbCqWriteProgress": Entry("rocksdb", "Have Java brokers compare consume queues"),
}


ALIASES: Final[dict[str, str]] = {"deleteaccessconfig": "deleteAclConfig"}
"""Other names, in lower case, that RocketMQ accepts, too."""


def find_command(name: str) -> str | None:
    """The command's own spelling of a name in any case; None when there is none."""
    folded = name.lower()
    if folded in ALIASES:
        return ALIASES[folded]
    return next((known for known in COMMANDS if known.lower() == folded), None)


OURS: Final = frozenset({"adminAudit", "verifyReplica", "listDlq", "resendDlq", "exportDlq"})
"""Commands that RocketMQ's mqadmin does not have."""
