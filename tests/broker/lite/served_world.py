"""Pops, acks and subscriptions of lite topics over plain tables: real processors, no log.

A light queue holds bodies, and its records are views as the log lends them. The loop is played by a
list of functions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast
from unittest import mock

from broker.lite.former_lives import FormerLives
from broker.lite.lite_acks import LiteAcks
from broker.lite.lite_event_dispatcher import DispatchParts, LiteEventDispatcher, tell_free
from broker.lite.lite_queues import LiteQueues
from broker.lite.lite_subscription_ctl_processor import CtlParts, LiteSubscriptionCtlProcessor
from broker.lite.lite_subscription_registry import LiteSubscriptionRegistry
from broker.lite.memory_consumer_order_info_manager import MemoryConsumerOrderInfoManager
from broker.lite.pop_lite_long_polling_service import PopLiteLongPollingService
from broker.lite.pop_lite_message_processor import PopLiteMessageProcessor, PopLiteParts
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.pop.pop_admission import PopAdmission
from broker.pop.pop_long_polling_service import PollingLimits
from broker.pop.pop_message_reader import PopMessageReader, QueueRead
from broker.pop.request_clock import RequestClock
from broker.processor.held_rights import no_rights
from broker.settings.broker_config import BrokerConfig
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.body.topic_config import TopicConfig
from remoting.connection import Connection
from remoting.errors import RequestError
from remoting.headers.extra_info_util import parse_extra_info
from remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from remoting.lite_names import to_lmq_name
from remoting.remoting_codec import decode_command
from remoting.remoting_command import RemotingCommand
from store.get_message_status import FOUND, OFFSET_OVERFLOW_ONE, OFFSET_TOO_SMALL
from store.message_codec import PHY_OFFSET_AT
from store.message_store_config import MessageStoreConfig

PARENT = "P"
RECORD = 64


class LiteServed:
    """See the module."""

    def __init__(self, path: Path, *, most: int = 1_000, young: bool = True) -> None:
        self.most = most
        self.leads = True
        self.now_ms = 1_700_000_000_000
        self.queues: dict[str, list[memoryview]] = {}
        self.gone: dict[str, int] = {}
        """The first offset of a queue that is there still."""
        self.place = 0
        self.topic = TopicConfig(topic_name=PARENT, attributes={"message.type": "LITE"})
        self.groups: dict[str, SubscriptionGroupConfig] = {}
        self.later: list[Any] = []
        self.answers: list[tuple[RemotingCommand, bytes]] = []
        self.offsets = ConsumerOffsetManager(path / "offsets.json")
        self.order = MemoryConsumerOrderInfoManager(lambda: self.now_ms)
        self.former_lives = FormerLives(self.first_place)
        self.lite_queues = LiteQueues(
            self.bounds, self.offsets, self.order, lambda _lmq: young, self.former_lives
        )
        self.dispatcher = LiteEventDispatcher(
            DispatchParts(
                wants=self.lite_queues.wants,
                is_waiting=lambda client: self.waiters.has_waiting(client),
                wake=lambda client: self.waiters.wake_client(client),
                lite_topics=lambda _parent: self.queues,
                monotonic_ms=lambda: self.now_ms,
            )
        )
        self.registry = LiteSubscriptionRegistry(lambda: self.most, self.dispatcher)
        self.dispatcher.registry = self.registry
        clock = RequestClock(lambda: self.now_ms, lambda: self.now_ms)
        stats = mock.MagicMock()
        self.pop = PopLiteMessageProcessor(
            PopLiteParts(
                admission=PopAdmission(BrokerConfig(), MessageStoreConfig(), clock),
                registry=self.registry,
                dispatcher=self.dispatcher,
                queues=self.lite_queues,
                reader=cast("PopMessageReader", self),
                find_topic={PARENT: self.topic, "T": TopicConfig(topic_name="T")}.get,
                find_group=self.groups.get,
                stats=stats,
                hold_rights=no_rights,
                clock=clock,
                log_end=lambda: self.place,
            )
        )
        self.waiters = PopLiteLongPollingService(
            self.pop.run_again, PollingLimits(3, 100, 200), lambda: self.now_ms
        )
        self.pop.waiters = self.waiters
        self.ctl = LiteSubscriptionCtlProcessor(
            CtlParts(
                registry=self.registry,
                dispatcher=self.dispatcher,
                queues=self.lite_queues,
                find_group=self.groups.get,
                leads=lambda: self.leads,
                stats=stats,
                monotonic_ms=lambda: self.now_ms,
                on_loop=self.later.append,
            )
        )
        self.acks = LiteAcks(
            self.lite_queues, self.dispatcher, self.groups.get, lambda: self.now_ms
        )
        self.connection = mock.create_autospec(Connection, instance=True)
        self.connection.remote_address = "127.0.0.1:1"
        self.connection.write_many.side_effect = self._answered
        self.connection.is_open = True
        self.group("G")

    def group(self, name: str, **attributes: str) -> None:
        """A lite group of the parent; a dot is written as two underscores."""
        own = {key.replace("__", "."): value for key, value in attributes.items()}
        self.groups[name] = SubscriptionGroupConfig(
            group_name=name, attributes={"lite.bind.topic": PARENT} | own
        )

    # -- the store -------------------------------------------------------------------------------

    def bounds(self, lmq: str, _queue_id: int) -> tuple[int, int]:
        return self.gone.get(lmq, 0), len(self.queues.get(lmq, ()))

    def first_place(self, lmq: str) -> int | None:
        messages = self.queues.get(lmq)
        return int.from_bytes(messages[0][PHY_OFFSET_AT : PHY_OFFSET_AT + 8]) if messages else None

    def read(
        self, lmq: str, _queue_id: int, offset: int, count: int, _wanted: object, _end: int
    ) -> QueueRead:
        """PopMessageReader.read."""
        low, high = self.bounds(lmq, 0)
        if offset < low:
            return QueueRead(OFFSET_TOO_SMALL, low, high, [], [])
        if offset >= high:
            return QueueRead(OFFSET_OVERFLOW_ONE, offset, high, [], [])
        offsets = list(range(offset, min(high, offset + count)))
        records = [self.queues[lmq][each] for each in offsets]
        return QueueRead(FOUND, offsets[-1] + 1, high, offsets, records)

    def send(self, *lites: str) -> None:
        """A message to each; its record holds nothing but its place."""
        for lite in lites:
            record = bytearray(RECORD)
            record[PHY_OFFSET_AT : PHY_OFFSET_AT + 8] = self.place.to_bytes(8)
            lmq = to_lmq_name(PARENT, lite)
            self.queues.setdefault(lmq, []).append(memoryview(record))
            self.place += RECORD
            self.dispatcher.arrived(lmq)

    # -- requests --------------------------------------------------------------------------------

    def _answered(self, buffers: list[bytes], size: int) -> None:
        head, *records = buffers
        assert size == sum(map(len, buffers))
        header_size = int.from_bytes(head[5:8])
        command = decode_command(head[8 : 8 + header_size], head[4])
        self.answers.append((command, b"".join(map(bytes, records))))

    def post_pop(self, client: str = "c", group: str = "G", **others: object) -> None:
        """200070."""
        fields = {
            "clientId": client,
            "consumerGroup": group,
            "topic": PARENT,
            "maxMsgNum": 32,
            "invisibleTime": 60_000,
            "pollTime": 0,
            **others,
        }
        texts = {name: str(value) for name, value in fields.items()}
        self.pop.process_request(self.connection, RemotingCommand(200070, ext_fields=texts))

    def popped(self, client: str = "c", group: str = "G", **others: object) -> list[int]:
        """The places in the log of what a pop got."""
        self.post_pop(client, group, **others)
        answer, body = self.answers.pop()
        places = [
            int.from_bytes(body[at + PHY_OFFSET_AT : at + PHY_OFFSET_AT + 8])
            for at in range(0, len(body), RECORD)
        ]
        items = answer.ext_fields["orderCountInfo"]
        assert len(items.split(";") if items else []) == len(places)
        assert (answer.code == 0) == bool(places)
        self.counts = [int(item.rpartition(" ")[2]) for item in items.split(";") if item]
        self.pop_time = int(answer.ext_fields["popTime"])
        return [place // RECORD for place in places]

    def handle(self, offset: int, place: object = "") -> str:
        """Of a message of the last pop. place: as a proxy adds it."""
        tail = f" {place}" if place != "" else ""
        return f"0 {self.pop_time} 60000 999 0 b 0 {offset}{tail}"

    def ack(self, lite: str, at: int, group: str = "G", **others: Any) -> None:
        """200051, without the checks of the parent's queue."""
        fields = {
            "consumer_group": group,
            "topic": PARENT,
            "queue_id": 0,
            "extra_info": self.handle(at),
            "offset": at,
            "lite_topic": lite,
        }
        header = AckMessageRequestHeader(**(fields | others))
        self.acks.ack("127.0.0.1:1", header, parse_extra_info(header.extra_info))

    def change(
        self, lite: str, offset: int, invisible_ms: int, group: str = "G", **others: Any
    ) -> ChangeInvisibleTimeResponseHeader | None:
        """200053, in the same way."""
        fields = {
            "consumer_group": group,
            "topic": PARENT,
            "queue_id": 0,
            "extra_info": self.handle(offset),
            "offset": offset,
            "invisible_time": invisible_ms,
            "lite_topic": lite,
        }
        header = ChangeInvisibleTimeRequestHeader(**(fields | others))
        return self.acks.change(header, parse_extra_info(header.extra_info))

    def subscribe(
        self, action: str = "PARTIAL_ADD", *lites: str, client: str = "c", **others: object
    ) -> RemotingCommand:
        """200071 and its answer."""
        change = {"action": action, "clientId": client, "group": "G", "topic": PARENT}
        return self.subscribe_all(change | {"liteTopicSet": list(lites)} | others)

    def subscribe_all(self, *changes: dict[str, object]) -> RemotingCommand:
        """200071 with several changes."""
        body = json.dumps({"subscriptionSet": list(changes)}).encode()
        request = RemotingCommand(200071, body=body)
        try:
            self.ctl.process_request(self.connection, request)
        except RequestError as error:
            return request.response(error.code, error.remark)
        return self.turn()

    def turn(self) -> RemotingCommand:
        """The loop's turns, until the request is answered."""
        while self.later:
            self.later.pop(0)()
        answer = self.connection.send_command.call_args.args[0]
        assert isinstance(answer, RemotingCommand)
        return answer

    def pass_time(self, ms: int) -> None:
        """What has become visible makes its events."""
        self.now_ms += ms
        while tell_free(self.dispatcher, self.order.take_free):
            pass
        self.waiters.scan()
