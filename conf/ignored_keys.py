"""The keys of RocketMQ 4.9.8, 5.3.3, 5.5.0 and 5.5.1 that have no effect in this broker.

They are grouped by reason. A settings file of RocketMQ works unchanged: the start names the ignored
keys that it found in one warning, and those that came with 5.5 in a line each, with the reason. A
key that a settings class declares is never looked up here. `REFUSED` holds the keys that must not
be ignored silently: their harmless value is accepted, any other stops the start, because the
operator would get less than the file promises. Data only.

Tested by tests/conf/test_ignored_keys.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

ALIASES: Final[Mapping[str, str]] = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
    "metricsPromExporterPort": "metricsPort",
    "metricsPromExporterHost": "metricsAddress",
    "haMaxGapNotInSync": "haSlaveFallbehindMax",
    "tls.enable": "useTLS",
    "rocketmq.namesrv.domain": "rmqAddressServerDomain",
    "rocketmq.namesrv.domain.subgroup": "rmqAddressServerSubGroup",
}
"""Alias (4.3 and older, 5.x, system properties) to key."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An ignored key of which only `harmless` values (in lower case) are accepted."""

    harmless: frozenset[str]
    reason: str


def _only(harmless: str, reason: str) -> Refusal:
    way_out = f"set it to {harmless} or remove the line" if harmless else "remove the line"
    return Refusal(frozenset({harmless}), f"{reason}; {way_out}")


_EACH_BROKER = (
    "a container looks no name servers up; name them, or set embeddedNamesrvEnable=false, and this "
    "in each broker's file"
)
_IN_FILES: Final = "in files only, there is no RocksDB"
REFUSED: Final[Mapping[str, Refusal]] = {
    "fetchNamesrvAddrByAddressServer": _only("false", _EACH_BROKER),
    "fetchNameSrvAddrByDnsLookup": _only("false", _EACH_BROKER),
    "enableDLegerCommitLog": _only(
        "false",
        "DLedger is not available: use controller mode (enableControllerMode); bin/mqadopt makes "
        "its store one of ours",
    ),
    "storeType": _only(
        "default", "only the file store is available; bin/mqadopt makes a RocksDB store one of ours"
    ),
    "configManagerVersion": _only(
        "v1",
        "only config/*.json files are available; bin/mqadopt writes them from RocksDB (config/rdb)",
    ),
    "popConsumerKVServiceEnable": _only(
        "false",
        "what is popped is kept in the log; bin/mqadopt takes over what RocksDB has (kvStore)",
    ),
    "messageStorePlugIn": _only("", "store plug-ins are not available"),
    "enableConsumeQueueExt": _only("false", "consumequeue extension files are not available"),
    "duplicationEnable": _only("false", "duplication mode is not available"),
    "clusterTest": _only("false", "routes of another environment are not available"),
    "timerRocksDBEnable": _only("false", f"timers are {_IN_FILES}"),
    "transRocksDBEnable": _only("false", f"half messages are {_IN_FILES}"),
    "indexRocksDBEnable": _only("false", f"the index is {_IN_FILES}"),
    "useSingleRocksDBForAllConfigs": _only("false", "only config/*.json files are available"),
    "rocksdbCQDoubleWriteEnable": _only(
        "false",
        f"consume queues are {_IN_FILES}; bin/mqadopt makes a store with both one of ours",
    ),
    "rocksdbCQSelectiveDoubleWriteEnable": _only("false", f"consume queues are {_IN_FILES}"),
    "combineCQUseRocksdbForLmq": _only("false", f"light queues are {_IN_FILES}"),
    "enableControllerInNamesrv": _only(
        "false",
        "it belongs in the file of bin/mqnamesrv: a broker's own name server has no controller",
    ),
}


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Access control of 5.x: its tables are in memory, in config/, and no decision is remembered.
_ACCESS_CONTROL = _keys(
    """
    aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond authConfigPath clusterName
    configName statefulAuthenticationCacheExpiredSecond statefulAuthenticationCacheMaxNum
    statefulAuthorizationCacheExpiredSecond statefulAuthorizationCacheMaxNum
    userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond
    """
)

# Stores and high-availability modes that are not available: DLedger, RocksDB, tiered.
_OTHER_STORES = _keys(
    """
    cleanRocksDBDirtyCQIntervalMin commitLogRollingInterval commitLogRollingMinimumSize
    configManagerVersion dLegerGroup dLegerPeers dLegerSelfId enableAutoInSyncReplicas
    enableBatchPush enableDLegerCommitLog enableRocksDBLog inBrokerContainer isEnableBatchPush
    memTableFlushIntervalMs objectStoreAccessKey objectStoreBucket objectStoreEndpoint
    objectStoreSecretKey preferredLeaderId readAheadCacheEnable readAheadCacheExpireDuration
    readAheadCacheSizeThresholdRate readAheadMessageCountThreshold readAheadMessageSizeThreshold
    realTimePersistRocksDBConfig recordGetMessageResult replicasPerDiskPartition
    rocksdbCQDoubleWriteEnable rocksdbCompressionType rocksdbFlushWalFrequency
    rocksdbWalFileRollingThreshold statRocksDBCQIntervalSec storeType
    tieredBackendServiceProvider tieredMetadataServiceProvider tieredStorageLevel
    tieredStoreCommitLogMaxSize tieredStoreConsumeQueueMaxSize tieredStoreCrcCheckEnable
    tieredStoreDeleteFileEnable tieredStoreDeleteFileInterval tieredStoreFilePath
    tieredStoreFileReservedTime tieredStoreGroupCommit tieredStoreGroupCommitCount
    tieredStoreGroupCommitSize tieredStoreGroupCommitTimeout tieredStoreIndexFileMaxHashSlotNum
    tieredStoreIndexFileMaxIndexNum tieredStoreMaxGroupCommitCount tieredStoreMaxPendingLimit
    """
)

# Thread pools and queues of the Java broker: requests run on the loop here. So do pulls: none waits
# in a queue, so waitTimeMillsInPullQueue has nothing to reject.
_THREADS_AND_QUEUES = _keys(
    """
    ackMessageThreadPoolNums ackThreadPoolQueueCapacity batchDispatchRequestThreadPoolNums
    clientCallbackExecutorThreads clientManageThreadPoolNums
    clientManagerThreadPoolQueueCapacity clientWorkerThreads compactionThreadNum
    consumerManageThreadPoolNums consumerManagerThreadPoolQueueCapacity dispatchCqThreads
    endTransactionThreadPoolNums heartbeatThreadPoolNums heartbeatThreadPoolQueueCapacity
    litePullMessageThreadPoolNums litePullThreadPoolQueueCapacity
    loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity
    processReplyMessageThreadPoolNums pullMessageThreadPoolNums putMessageFutureThreadPoolNums
    putThreadPoolQueueCapacity recoverThreadPoolNums replyThreadPoolQueueCapacity
    sendMessageThreadPoolNums serverAsyncSemaphoreValue serverCallbackExecutorThreads
    serverOnewaySemaphoreValue serverSelectorThreads serverWorkerThreads
    timerGetMessageThreadNum timerPutMessageThreadNum waitTimeMillsInPullQueue
    """
)

# Socket and Netty settings: buffers are left to the kernel, and there is no Netty.
_SOCKETS = _keys(
    """
    channelNotActiveInterval clientPooledByteBufAllocatorEnable clientSocketRcvBufSize
    clientSocketSndBufSize disableCallbackExecutor disableNettyWorkerGroup
    enableReconnectForGoAway enableShutdownGracefully maxReconnectIntervalTimeSeconds
    scanAvailableNameSrv serverNettyWorkerGroupEnable serverPooledByteBufAllocatorEnable
    serverSocketRcvBufSize serverSocketSndBufSize shutdownWaitTimeSeconds socksProxyConfig
    useEpollNativeSelector writeBufferHighWaterMark writeBufferLowWaterMark
    """
)

# Pop consumption, timer wheel, compaction: features of 5.x clients.
_POP_AND_TIMER = _keys(
    """
    appendAckAsync appendCkAsync commercialTimerCount
    dispatchCqCacheNum enableAsyncReput
    enableNotifyBeforePopCalculateLag enablePopBatchAck
    enablePopLog enableSkipLongAwaitingAck litePullMessageEnable
    lockInStrictMode
    popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit
    popConsumerKVServiceLog
    popLongPollingForceNotifyInterval
    popReviveMaxAttemptTimes popReviveMaxReturnSizePerRead recheckReputOffsetFromCq
    reviveAckWaitMs reviveMaxSlow reviveScanTime
    searchBcqByCacheEnable
    splitRegistrationSize
    timerEnableCheckMetrics timerEnableRetryUntilSuccess
    timerInterceptDelayLevel timerMetricSmallThreshold
    timerProgressLogIntervalMs timerSkipUnknownError
    waitTimeMillsInLitePullQueue
    """
)

# The rest of BrokerConfig: unused in RocketMQ, too, or one fixed behaviour here.
_BROKER = _keys(
    """
    accountStatsEnable accountStatsPrintZeroValues asyncSendEnable
    brokerConfigPath
    channelExpiredTimeout
    cleanOfflineBrokerInterval clearRetryTopicWhenDeleteTopic commercialBaseCount
    commercialBigCount commercialEnable commercialSizePerMsg commercialTransCount
    consumerOffsetUpdateVersionStep
    delayOffsetUpdateVersionStep
    enableCalcFilterBitMap enableCreateSysGroup enableFastChannelEventProcess
    enableNetWorkFlowControl enableRegisterProducer
    enableSingleTopicRegister enableSplitRegistration estimateAccumulation
    filterServerNums
    flushConsumerOffsetHistoryInterval highSpeedMode
    loadBalancePollNameServerInterval maxDelayTime
    maxStatsIdleTimeInMinutes messageStorePlugIn metricGrpcExporterIntervalInMills
    metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills metricsExporterType
    metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel
    metricsOtelCardinalityLimit printChannelGroups printChannelGroupsMinNum
    realTimeNotifyConsumerChange recoverConcurrently rejectPullConsumerEnable
    subscriptionExpiredTimeout transactionMetricFlushInterval
    transactionOpBatchInterval transactionOpMsgMaxSize transferMsgByHeap
    useStaticSubscription
    validateSystemTopicWhenUpdateTopic waitTimeMillsInAckQueue waitTimeMillsInAdminBrokerQueue
    """
)

# The rest of MessageStoreConfig: one mechanism here where RocketMQ has a choice.
_STORE = _keys(
    """
    bitMapLengthConsumeQueueExt
    bottomMostCompressionTypeForConsumeQueueStore cleanSwapedMapInterval
    commitCommitLogLeastPages commitCommitLogThoroughInterval commitIntervalCommitLog
    commitLogForceSwapMapInterval commitLogSwapMapInterval commitLogSwapMapReserveFileNum
    correctLogicMinOffsetForceInterval correctLogicMinOffsetSleepInterval
    debugLockEnable destroyMapedFileIntervalForcibly disappearTimeAfterStart diskFallRecorded
    dispatchFromSenderThread duplicationEnable enableBuildConsumeQueueConcurrently
    enableCleanExpiredOffset enableConsumeQueueExt enableScheduleAsyncDeliver
    enableScheduleMessageStats enabledAppendPropCRC fastFailIfNoBufferInStorePool
    flushCommitLogTimed flushLeastPagesWhenWarmMapedFile forceVerifyPropCRC haFlowControlEnable
    isScanAvailableNameSrv logicQueueForceSwapMapInterval logicQueueSwapMapInterval
    logicQueueSwapMapReserveFileNum logicalDiskSpaceCleanForciblyThreshold
    mappedFileSizeConsumeQueueExt mappedFileSwapEnable maxAsyncPutMessageRequests
    maxBatchDeleteFilesNum maxChecksumRange maxConsumeQueueScan maxFilterMessageSize
    maxHaTransferByteInSecond maxRecoveryCommitlogFiles maxSlaveResendLength maxTopicLength
    pullBatchMaxMessageCount putConsumeQueueDataByFileChannel
    putMessageTimeout putMsgIndexHightWater readUnCommitted
    redeleteHangedFileInterval sampleCountThreshold
    scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
    spinLockCollisionRetreatOptimalDegree storePathDLedgerCommitLog
    topicQueueLockNum transientStorePoolEnable
    transientStorePoolSize travelCqFileNumWhenGetMessage useABSLock
    useReentrantLockWhenPutMessage wakeCommitWhenPutMessage wakeFlushWhenPutMessage
    warmMapedFileEnable
    """
)

# What 5.5.0 and 5.5.1 added: why each has no effect, which the start says.
SINCE_5_5: Final[Mapping[str, frozenset[str]]] = {
    "there is no RocksDB": _keys(
        """
        combineAssignOffsetCQType combineCQEnableCheckSelf combineCQLoadingCQTypes
        combineCQMaxExtraSearchCommitLogFiles combineCQPreferCQType combineCQUseRocksdbForLmq
        indexRocksDBEnable iteratorWhenUseRocksdbConsumeQueue maxRocksDBIndexQueryDays
        persistConsumerOffsetIncrementally popRocksdbBlockCacheSize popRocksdbWriteBufferSize
        rocksdbCQSelectiveDoubleWriteEnable rocksdbMaxSizeAmplificationPercent timerRocksDBEnable
        timerRocksDBPrecisionMs timerRocksDBRollIntervalHours timerRocksDBRollMaxTps
        timerRocksDBRollRangeHours timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps
        transRocksDBEnable transWriteOriginTransHalfEnable transactionCheckRocksdbCoreThreads
        transactionCheckRocksdbMaxThreads transactionCheckRocksdbQueueCapacity
        useSeparateStorePathForRocksdbCQ useSingleRocksDBForAllConfigs
        """
    ),
    "timers have one engine": _keys("timerRecallToTimeWheelEnable timerRecallToTimelineEnable"),
    "the timer wheel is written in place, under process store's own guard": _keys(
        """
        timerReputServiceCorePoolSize timerReputServiceMaxPoolSize timerReputServiceQueueCapacity
        timerWheelSnapshotFlush timerWheelSnapshotIntervalMs
        """
    ),
    "a start recovers in one way, which reads what may be new and repairs it": _keys(
        """
        checkCommitLogOffsetOnRecover commitLogRecoverMaxNum enableAcceleratedRecovery
        enableLogConsumeQueueRepeatedlyBuildWhenRecover
        """
    ),
    "the log is written with pwrite, without buffers of its own": _keys(
        """
        correctMinOffsetMadviseEnable enableRunningFlagsInFlush maxCheckMessageReuseBufferSize
        sharedByteBufferNum writeWithoutMmap
        """
    ),
    "/metrics shows all series, and is asked instead of exporting": _keys(
        """
        enableConnectionMetrics enableLagAndDlqMetrics enableMessageStoreMetrics enablePopMetrics
        enableRemotingMetrics enableRequestMetrics enableStatsMetrics enableTransactionMetrics
        metricsExportBatchMaxConcurrent metricsExportBatchMaxDataPoints
        metricsExportBatchSplitEnabled metricsExportOtelMemoryMode
        """
    ),
    "revival and waiting pops have no threads or tables of that kind": _keys(
        """
        popOrderLockTimerTickMs popOrderLockTimerTicksPerWheel popPollingMapExpireTimeSeconds
        popReviveConcurrency
        """
    ),
    "what a deleted group has popped is not revived, and a group that is lost is put back": _keys(
        "popReviveSkipIfGroupAbsent"
    ),
    "events of lite topics are never dropped, and reach a client at once": _keys(
        """
        enableLiteEventMode enableLitePopLog liteEventCapacityCacheTtlMs
        liteEventFullDispatchDelayTime liteEventFullDispatchDelayTimeForWildcardGroup
        """
    ),
}
"""Reason to keys. One that takes effect here leaves its list for a settings class."""

# NamesrvConfig, ControllerConfig and NettyServerConfig: what the name server does not need.
_NAMESRV = _keys(
    """
    clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity clusterTest
    controllerDLegerGroup controllerDLegerPeers controllerDLegerSelfId
    controllerRequestThreadPoolQueueCapacity controllerStorePath controllerThreadPoolNums
    controllerType defaultThreadPoolNums defaultThreadPoolQueueCapacity
    deleteTopicWithBrokerRegistration electMasterMaxRetryCount enableAllTopicList
    enableElectUncleanMaster enableShutdownGracefully enableTopicList
    jraftConfig mappedFileSize metricGrpcExporterIntervalInMills
    metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills metricsExporterType
    metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel
    metricsPromExporterHost metricsPromExporterPort needWaitForService notifyBrokerRoleChanged
    processReadEvent productEnvName returnOrderTopicConfigToBroker
    scanInactiveMasterInterval serverAsyncSemaphoreValue serverCallbackExecutorThreads
    serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
    serverSelectorThreads serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
    shutdownWaitTimeSeconds unRegisterBrokerQueueCapacity
    useEpollNativeSelector useTLS waitSecondsForService writeBufferHighWaterMark
    writeBufferLowWaterMark
    """
)

_OF_THE_NAMESRV = _keys("enableControllerInNamesrv")
"""Refused in a broker's file, where RocketMQ does not look at it."""

IGNORED_BROKER_GROUPS: Final[Mapping[str, frozenset[str]]] = {
    "access control of 5.x: no caches, tables in config/": _ACCESS_CONTROL,
    "DLedger, RocksDB, tiered store, pre-online": _OTHER_STORES,
    "thread pools and their queues: requests run on the loop": _THREADS_AND_QUEUES,
    "sockets: there is no Netty, and buffers are left to the kernel": _SOCKETS,
    "pop, timer wheel, light queues, compaction": _POP_AND_TIMER,
    "the rest of BrokerConfig: unused in RocketMQ, too, or one fixed behaviour here": _BROKER,
    "the rest of MessageStoreConfig: one mechanism where RocketMQ has a choice": _STORE,
    **{f"since 5.5: {reason}": keys for reason, keys in SINCE_5_5.items()},
}
"""Reason to keys, for the broker, which reads the keys of four Java classes."""

IGNORED_BROKER_KEYS: Final = frozenset().union(*IGNORED_BROKER_GROUPS.values(), _OF_THE_NAMESRV)

REASONS: Final = {key: reason for reason, keys in SINCE_5_5.items() for key in keys}
"""Key to reason, of those that a start names in a line each."""

IGNORED_NAMESRV_KEYS: Final = _NAMESRV
"""Of the name server."""

IGNORED_CONTROLLER_KEYS: Final = _keys(
    """
    channelNotActiveInterval clientPooledByteBufAllocatorEnable clientSocketRcvBufSize
    clientSocketSndBufSize disableCallbackExecutor disableNettyWorkerGroup enableReconnectForGoAway
    maxReconnectIntervalTimeSeconds scanAvailableNameSrv socksProxyConfig
    clientCallbackExecutorThreads clientWorkerThreads controllerRequestThreadPoolQueueCapacity
    controllerThreadPoolNums controllerType electMasterMaxRetryCount enableShutdownGracefully
    isProcessReadEvent jRaftElectionTimeoutMs jRaftGroupId jRaftScanWaitTimeoutMs jRaftServerId
    jRaftSnapshotIntervalSecs jraftConfig mappedFileSize metricGrpcExporterIntervalInMills
    metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills metricsExporterType
    metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel
    metricsPromExporterHost metricsPromExporterPort processReadEvent scanNotActiveBrokerInterval
    serverAsyncSemaphoreValue serverCallbackExecutorThreads serverNettyWorkerGroupEnable
    serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads
    serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads shutdownWaitTimeSeconds
    useEpollNativeSelector writeBufferHighWaterMark writeBufferLowWaterMark
    """
)
"""Of the controller: there is no raft, and requests run on the loop."""

IGNORED_CONTAINER_KEYS: Final = _keys(
    """
    fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval
    updateNamesrvAddrInterval
    """
)
"""Of the broker container, besides those of the broker: its brokers look name servers up."""
