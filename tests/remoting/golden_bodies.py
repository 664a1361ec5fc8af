"""JSON bodies that real peers wrote: the captured ones, and one of each other Java class."""

from __future__ import annotations

from pathlib import Path

from remoting.body import (
    client_connection,
    consumer_offset,
    consumer_running_info,
    heartbeat,
    kv_table,
    lock_batch,
    query_queue,
    register_broker,
    reset_offset,
    route,
    stats,
    subscription_group_config,
    topic_config,
)
from remoting.body.json_bean import JsonBean
from tests.remoting.golden_frames import golden_frames

BODIES: dict[tuple[int, str], type[JsonBean]] = {
    (21, "response"): topic_config.TopicConfigSerializeWrapper,
    (28, "response"): kv_table.KVTable,
    (34, "request"): heartbeat.HeartbeatData,
    (38, "response"): client_connection.GetConsumerListByGroupResponseBody,
    (41, "request"): lock_batch.LockBatchRequestBody,
    (41, "response"): lock_batch.LockBatchResponseBody,
    (42, "request"): lock_batch.UnlockBatchRequestBody,
    (43, "response"): consumer_offset.ConsumerOffsetSerializeWrapper,
    (45, "response"): consumer_offset.DelayOffsetSerializeWrapper,
    (103, "request"): register_broker.RegisterBrokerBody,
    (105, "response"): route.TopicRouteData,
    (106, "response"): route.ClusterInfo,
    (200, "request"): subscription_group_config.SubscriptionGroupConfig,
    (201, "response"): subscription_group_config.SubscriptionGroupWrapper,
    (202, "response"): stats.TopicStatsTable,
    (206, "response"): topic_config.TopicList,
    (208, "response"): stats.ConsumeStats,
    (300, "response"): client_connection.GroupList,
    (315, "response"): stats.BrokerStatsData,
}
JAVA_CLASSES: list[type[JsonBean]] = [
    client_connection.ConsumerConnection,
    client_connection.GetConsumerListByGroupResponseBody,
    client_connection.ProducerConnection,
    client_connection.ProducerTableInfo,
    consumer_running_info.ConsumeMessageDirectlyResult,
    consumer_running_info.ConsumerRunningInfo,
    heartbeat.CheckClientRequestBody,
    heartbeat.HeartbeatData,
    lock_batch.UnlockBatchRequestBody,
    query_queue.QueryConsumeQueueResponseBody,
    query_queue.QueryConsumeTimeSpanBody,
    register_broker.RegisterBrokerBody,
    reset_offset.GetConsumerStatusBody,
    reset_offset.OffsetMovedEvent,
    reset_offset.QueryCorrectionOffsetBody,
    reset_offset.ResetOffsetBody,
    reset_offset.ResetOffsetBodyForC,
    route.TopicRouteData,
    stats.BrokerStatsData,
    stats.ConsumeStats,
    stats.ConsumeStatsList,
    topic_config.TopicList,
]
JAVA_BODIES = dict(
    line.split("\t", 1)
    for line in (Path(__file__).parent / "java_bodies.txt").read_text().splitlines()
)
JSON_FRAMES = [golden for golden in golden_frames() if golden.command().body[:2] == b'{"']


def golden_beans() -> list[JsonBean]:
    """Every one of them, read."""
    frames = (
        BODIES[golden.code, golden.side].from_json_bytes(golden.command().body)
        for golden in JSON_FRAMES
    )
    written = (cls.from_json_bytes(JAVA_BODIES[cls.__name__].encode()) for cls in JAVA_CLASSES)
    return [*frames, *written]
