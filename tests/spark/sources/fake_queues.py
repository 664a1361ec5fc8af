"""FakeQueues: StoredQueues whose records have right check sums, and whose pulls select by tag."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark import cloudpickle

from remoting.body.topic_queue_mapping import TopicQueueMappingInfo
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from spark.sources.cluster import Cluster
from store.java_hash import tags_code
from store.message import Message
from store.message_codec import decode_record, encode_host, encode_record
from tests.tools.fake_cluster import FakeCluster
from tests.tools.stored_queues import Stored, StoredQueues
from tools.admin_client import NameServers

DEAD = "127.0.0.1:1"
NOT_SUPPORTED = 3
_cloudpickle: Any = cloudpickle  # has no types


def pickled(value: object) -> bytes:
    """As Spark pickles what it sends to Python workers."""
    return bytes(_cloudpickle.dumps(value))


class FakeQueues(StoredQueues):
    """`groups`: progress by group, topic and queue id; `committed`: what was written."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.groups: dict[tuple[str, str, int], int] = {}
        self.committed: dict[tuple[str, str, int], int] = {}
        cluster.answers |= {
            RequestCode.QUERY_CONSUMER_OFFSET: self._group,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
            RequestCode.GET_TOPIC_CONFIG: lambda request: request.response(NOT_SUPPORTED, "old"),
        }

    def plain(self, topic: str, *counts: int) -> None:
        """A topic whose queues have so many messages, with a tag and a key."""
        self.topic(topic, [[numbered(place) for place in range(count)] for count in counts])

    def static(self, topic: str) -> None:
        """Its queues are logic ones from now on, which brokers keep by other ids."""
        if topic not in self.routes:
            self.topic(topic, [[]])
        mapping = TopicQueueMappingInfo(topic=topic, bname="broker-g", curr_id_map={7: 0})
        changed: Any = {"topic_queue_mapping_by_broker": {"broker-g": mapping}}
        self.routes[topic] = replace(self.routes[topic], **changed)

    def _record(self, topic: str, queue_id: int, place: int, message: Stored) -> bytes:
        times = self._times.setdefault((topic, queue_id), [])
        times.append(message.stored_ms or (times[-1] if times else 0) + 10_000)
        text = "\x02".join(f"{name}\x01{value}" for name, value in message.properties.items())
        made = encode_record(
            Message(
                topic=topic,
                queue_id=queue_id,
                queue_offset=place,
                phy_offset=self._size,
                sys_flag=message.sys_flag,
                born_timestamp=1000,
                born_host=encode_host("127.0.0.1", 4000),
                store_timestamp=times[-1],
                store_host=encode_host("127.0.0.2", 10911),
                body=message.body,
                properties=text.encode(),
            )
        )
        self._size += len(made)
        return made

    def _pull(self, request: RemotingCommand) -> RemotingCommand:
        """Tags are compared by their hash codes, as brokers do."""
        answer = super()._pull(request)
        expression = request.ext_fields["subscription"]
        if expression == "*" or answer.code != 0:
            return answer
        codes = {tags_code(tag.strip()) for tag in expression.split("||")}
        kept = [each for each in _split(answer.body) if _tag_code(each) in codes]
        code = 0 if kept else 20
        return request.response(code, None, answer.ext_fields, b"".join(kept))

    def _group(self, request: RemotingCommand) -> RemotingCommand:
        offset = self.groups.get(_group_place(request))
        if offset is None:
            return request.response(22, "not found")
        return request.response(0, None, {"offset": str(offset)})

    def _commit(self, request: RemotingCommand) -> RemotingCommand:
        self.committed[_group_place(request)] = int(request.ext_fields["commitOffset"])
        return request.response(0)


def numbered(place: int) -> Stored:
    """A message that tells where it is."""
    tag = "ABC"[place % 3]
    return Stored({"TAGS": tag, "KEYS": f"key-{place}"}, body=b"body %d" % place)


def only_a_slave(stored: FakeQueues, topic: str = "T") -> None:
    """The topic's master is away."""
    addresses = stored.routes[topic].broker_datas[0].broker_addrs
    addresses[1] = addresses.pop(0)


def _group_place(request: RemotingCommand) -> tuple[str, str, int]:
    fields = request.ext_fields
    return fields["consumerGroup"], fields["topic"], int(fields["queueId"])


def _split(records: bytes) -> list[bytes]:
    found = []
    at = 0
    while at < len(records):
        size = int.from_bytes(records[at : at + 4], "big")
        found.append(records[at : at + size])
        at += size
    return found


def _tag_code(record: bytes) -> int:
    return tags_code(decode_record(record, 0)[0].find_property("TAGS"))


def away(client: Cluster) -> list[float]:
    """Its name servers do not answer until it pauses; the pauses."""
    servers = client.admin.name_servers
    client.admin.name_servers = NameServers((DEAD,))
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        client.admin.name_servers = servers

    client.pause = pause
    return waited
