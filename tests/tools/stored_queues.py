"""Queues of stored messages behind a fake cluster: pulls, offsets, look-ups by key and id, sends.

Brokers share the fake cluster's one address, so each has the queues that its topic's route names,
by queue id.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from remoting.body.client_connection import GroupList
from remoting.body.message_queue import MessageQueue
from remoting.body.route import BrokerData, QueueData, TopicRouteData
from remoting.body.stats import TopicOffset, TopicStatsTable
from remoting.body.topic_config import TopicList
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster
from tests.tools.test_message_decoder import record

PERM_READ_WRITE = 6
NO_TOPIC = 17
PULL_FIELDS = {"suggestWhichBrokerId": "0"}


@dataclass
class Stored:
    """A message at a place."""

    properties: dict[str, str] = field(default_factory=dict)
    body: bytes = b"hello"
    sys_flag: int = 0
    stored_ms: int = 0
    """0: ten seconds after the message before it."""


class StoredQueues:
    """`answers` by topic: what a send there is answered, code and remark; `refused` by topic and
    queue id: what every read there is."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self.queues: dict[str, list[list[bytes]]] = {}
        self.routes: dict[str, TopicRouteData] = {}
        self.first: dict[tuple[str, int], int] = {}
        self.refused: dict[tuple[str, int], tuple[int, str]] = {}
        self.answers: dict[str, tuple[int, str | None]] = {}
        self.consumers: dict[str, list[str]] = {}
        self.on_send: Callable[[], object] = lambda: None
        """Called before a send is answered."""
        self._times: dict[tuple[str, int], list[int]] = {}
        self._size = 0
        self._id = (cluster.address.rpartition(":")[0], int(cluster.address.rpartition(":")[2]))
        cluster.answers |= {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topics,
            RequestCode.GET_TOPIC_STATS_INFO: self._stats,
            RequestCode.GET_MIN_OFFSET: self._min,
            RequestCode.GET_MAX_OFFSET: self._max,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.QUERY_MESSAGE: self._query,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._groups,
        }

    def topic(
        self, name: str, queues: Sequence[Sequence[Stored]] = ((),), perm: int = PERM_READ_WRITE
    ) -> None:
        """A topic of these queues."""
        self.queues[name] = [
            [self._record(name, number, place, each) for place, each in enumerate(messages)]
            for number, messages in enumerate(queues)
        ]
        self.routes[name] = TopicRouteData(
            broker_datas=[
                BrokerData(
                    cluster="c", broker_name="broker-g", broker_addrs={0: self.cluster.address}
                )
            ],
            queue_datas=[
                QueueData(
                    broker_name="broker-g",
                    read_queue_nums=len(queues),
                    write_queue_nums=len(queues),
                    perm=perm,
                )
            ],
        )

    def letter_id(self, topic: str, queue_id: int, place: int) -> str:
        """The offset id of a message."""
        return (
            f"{self._host().hex()}{self._offset(self.queues[topic][queue_id][place]):016x}".upper()
        )

    def sends(self) -> list[RemotingCommand]:
        """What was sent."""
        return self.cluster.asked(RequestCode.SEND_MESSAGE_V2)

    # -- messages ------------------------------------------------------------------------------

    def _host(self) -> bytes:
        return socket.inet_aton(self._id[0]) + self._id[1].to_bytes(4, "big")

    def _record(self, topic: str, queue_id: int, place: int, message: Stored) -> bytes:
        times = self._times.setdefault((topic, queue_id), [])
        times.append(message.stored_ms or (times[-1] if times else 0) + 10_000)
        text = "\x02".join(f"{name}\x01{value}" for name, value in message.properties.items())
        made = record(
            body=message.body,
            topic=topic.encode(),
            sys_flag=message.sys_flag,
            properties=text.encode(),
            queue_offset=place,
            phy_offset=self._size,
            stored_ms=times[-1],
        )
        self._size += len(made)
        return made.replace(bytes([127, 0, 0, 2]) + (10911).to_bytes(4, "big"), self._host())

    @staticmethod
    def _offset(stored: bytes) -> int:
        return int.from_bytes(stored[28:36], "big")

    # -- answers -------------------------------------------------------------------------------

    def _route(self, request: RemotingCommand) -> RemotingCommand:
        route = self.routes.get(request.ext_fields["topic"])
        if route is None:
            return request.response(NO_TOPIC, "no such topic")
        return request.response(0, body=route.to_json_bytes())

    def _topics(self, request: RemotingCommand) -> RemotingCommand:
        return request.response(0, body=TopicList(topic_list=list(self.queues)).to_json_bytes())

    def _place(self, request: RemotingCommand) -> tuple[str, int]:
        return request.ext_fields["topic"], int(request.ext_fields["queueId"])

    def _refusal(self, request: RemotingCommand) -> RemotingCommand | None:
        refused = self.refused.get(self._place(request))
        return None if refused is None else request.response(*refused)

    def _stats(self, request: RemotingCommand) -> RemotingCommand:
        """Of the queues that may be read."""
        topic = request.ext_fields["topic"]
        table = {
            MessageQueue(broker_name="broker-g", queue_id=number, topic=topic): TopicOffset(
                min_offset=self.first.get((topic, number), 0),
                max_offset=len(queue),
                last_update_timestamp=self._times[topic, number][-1] if queue else 0,
            )
            for number, queue in enumerate(self.queues[topic])
            if (topic, number) not in self.refused
        }
        return request.response(0, body=TopicStatsTable(offset_table=table).to_json_bytes())

    def _offset_of(self, request: RemotingCommand, offset: int) -> RemotingCommand:
        return self._refusal(request) or request.response(0, None, {"offset": str(offset)})

    def _min(self, request: RemotingCommand) -> RemotingCommand:
        return self._offset_of(request, self.first.get(self._place(request), 0))

    def _max(self, request: RemotingCommand) -> RemotingCommand:
        topic, queue_id = self._place(request)
        return self._offset_of(request, len(self.queues[topic][queue_id]))

    def _search(self, request: RemotingCommand) -> RemotingCommand:
        """A time behind the last message is answered with that message, as 4.9 does."""
        times = self._times.get(self._place(request), [])
        wanted = int(request.ext_fields["timestamp"])
        found = next((n for n, time in enumerate(times) if time >= wanted), len(times) - 1)
        return self._offset_of(request, max(found, 0))

    def _pull(self, request: RemotingCommand) -> RemotingCommand:
        """At most three at once, fewer than asked for, as brokers limit bytes."""
        place = self._place(request)
        stored, first = self.queues[place[0]][place[1]], self.first.get(place, 0)
        offset = int(request.ext_fields["queueOffset"])
        fields = PULL_FIELDS | {"minOffset": str(first), "maxOffset": str(len(stored))}
        if (refusal := self._refusal(request)) is not None:
            return refusal
        if offset < first:
            return request.response(21, None, fields | {"nextBeginOffset": str(first)})
        found = stored[offset : offset + min(int(request.ext_fields["maxMsgNums"]), 3)]
        fields["nextBeginOffset"] = str(offset + len(found))
        return request.response(0 if found else 19, None, fields, b"".join(found))

    def _query(self, request: RemotingCommand) -> RemotingCommand:
        topic, key = request.ext_fields["topic"], request.ext_fields["key"].encode()
        if (refused := self.refused.get((topic, -1))) is not None:
            return request.response(*refused)
        all_of_them = [each for queue in self.queues.get(topic, []) for each in queue]
        found = b"".join(each for each in all_of_them if key in each)
        fields = {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
        return request.response(0 if found else 22, None, fields, found)

    def _view(self, request: RemotingCommand) -> RemotingCommand:
        wanted = int(request.ext_fields["offset"])
        for queues in self.queues.values():
            for each in (message for queue in queues for message in queue):
                if self._offset(each) == wanted:
                    return request.response(0, body=each)
        return request.response(1, "no message there")

    def _send(self, request: RemotingCommand) -> RemotingCommand:
        self.on_send()
        code, remark = self.answers.get(request.ext_fields["b"], (0, None))
        fields = {"msgId": f"NEW{len(self.sends())}", "queueId": "0", "queueOffset": "7"}
        return request.response(code, remark, fields)

    def _groups(self, request: RemotingCommand) -> RemotingCommand:
        groups = self.consumers.get(request.ext_fields["topic"], [])
        return request.response(0, body=GroupList(group_list=groups).to_json_bytes())
