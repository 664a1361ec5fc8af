"""The settings that request 25 may change, and when a new value counts. Pure data.

An allow-list: a key that is not here can only be changed in the settings file before a start.
Nothing here is a path, an address, a port, a name, or anything that is ever executed, and nothing
that the files on disk depend on (file sizes, queue layout, delay levels, a slave's role). A key may
be NOW only if every reader of it sees the new value: ConfigApplication gives it to them, in this
process and in `store`. Where only a part would, it is AFTER_RESTART: a later but whole change.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final


class Applies(enum.StrEnum):
    """When a changed value counts."""

    NOW = "now"
    AFTER_RESTART = "after a restart"


RETENTION_KEYS: Final = frozenset(
    {
        "fileReservedTime",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "diskSpaceWarningLevelRatio",
        "diskSpaceCleanForciblyRatio",
        "cleanFileForciblyEnable",
        "deleteFileBatchMax",
    }
)
"""Held by process `store` (RetentionRules): an operator whose disk fills cannot wait."""

CHANGE_RETENTION: Final = "change_retention"
"""The command that takes them to `store`; argument `settings`: all of them, key to text."""

_NOW: Final = RETENTION_KEYS | {
    "brokerPermission",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
    # Pulling.
    "longPollingEnable",
    "shortPollingTimeMills",
    "slaveReadEnable",
    "maxTransferBytesOnMessageInMemory",
    "maxTransferCountOnMessageInMemory",
    "maxTransferBytesOnMessageInDisk",
    "maxTransferCountOnMessageInDisk",
    # Registration at the name servers.
    "forceRegister",
    "registerBrokerTimeoutMills",
    "compressedRegister",
}
_AFTER_RESTART: Final = frozenset(
    {
        # Topics, sending, pulling.
        "defaultTopicQueueNums",
        "clusterTopicEnable",
        "brokerTopicEnable",
        "traceTopicEnable",
        "traceOn",
        "maxMessageSize",
        "rejectTransactionMessage",
        "startAcceptSendRequestTimeStamp",
        "transactionTimeOut",
        "transactionCheckMax",
        "transactionCheckInterval",
        "storeReplyMessageEnable",
        "enablePropertyFilter",
        "notifyConsumerIdsChangedEnable",
        "accessMessageInMemoryMaxRatio",
        "maxMsgsNumBatch",
        "defaultQueryMaxNum",
        "offsetCheckInSlave",
        # Pools and refusing early.
        "brokerFastFailureEnable",
        "waitTimeMillsInSendQueue",
        "osPageCacheBusyTimeOutMills",
        "waitTimeMillsInHeartbeatQueue",
        "waitTimeMillsInTransactionQueue",
        "sendThreadPoolQueueCapacity",
        "pullThreadPoolQueueCapacity",
        "queryThreadPoolQueueCapacity",
        "endTransactionPoolQueueCapacity",
        "adminBrokerThreadPoolQueueCapacity",
        "queryMessageThreadPoolNums",
        "adminBrokerThreadPoolNums",
        # Periods of services that are scheduled once.
        "flushConsumerOffsetInterval",
        "flushDelayOffsetInterval",
        "registerNameServerPeriod",
        "slaveSyncInterval",
        "cleanResourceInterval",
        "deleteCommitLogFilesInterval",
        "deleteConsumeQueueFilesInterval",
        # Durability.
        "brokerRole",
        "flushDiskType",
        "syncFlushTimeout",
        "slaveTimeout",
        "flushIntervalCommitLog",
        "flushCommitLogLeastPages",
        "flushCommitLogThoroughInterval",
        "flushIntervalConsumeQueue",
        "flushConsumeQueueLeastPages",
        "flushConsumeQueueThoroughInterval",
        "checkCRCOnRecover",
        "messageIndexEnable",
        "messageIndexSafe",
        # Statistics.
        "enableDetailStat",
        "autoDeleteUnusedStats",
    }
)

CHANGEABLE: Final[Mapping[str, Applies]] = {
    **dict.fromkeys(sorted(_NOW), Applies.NOW),
    **dict.fromkeys(sorted(_AFTER_RESTART), Applies.AFTER_RESTART),
}
"""Key to when a new value counts."""
