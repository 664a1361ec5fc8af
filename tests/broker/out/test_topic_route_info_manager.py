"""broker.out.topic_route_info_manager: the queues of a route as clients see them."""

from __future__ import annotations

from broker.out.topic_route_info_manager import readable_queues
from remoting.body.route import QueueData, TopicRouteData
from remoting.body.topic_queue_mapping import TopicQueueMappingInfo

DATAS = [
    QueueData(broker_name="b", read_queue_nums=1, write_queue_nums=1, perm=6),
    QueueData(broker_name="a", read_queue_nums=2, write_queue_nums=1, perm=4),
    QueueData(broker_name="c", read_queue_nums=2, write_queue_nums=1, perm=2),
]


def names(route: TopicRouteData) -> list[tuple[str, int]]:
    return [(queue.broker_name, queue.queue_id) for queue in readable_queues("T", route)]


def test_the_readable_queues_of_each_broker() -> None:
    assert names(TopicRouteData(queue_datas=DATAS)) == [("a", 0), ("a", 1), ("b", 0)]


def test_a_static_topic_has_logic_queues() -> None:
    mappings = {
        "a": TopicQueueMappingInfo(topic="T", total_queues=2, bname="a", curr_id_map={0: 0}),
        "b": TopicQueueMappingInfo(topic="T", total_queues=3, bname="b", curr_id_map={2: 0}),
    }
    route = TopicRouteData(queue_datas=DATAS, topic_queue_mapping_by_broker=mappings)
    assert names(route) == [("__syslo__global__", number) for number in range(3)]
