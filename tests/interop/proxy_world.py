"""What the tests of a proxy work with: a name server, a broker, Java's proxy, a client a language.

The proxy's clients cost a second or two each, and most of what they do is waiting: a test has all
three languages do it at the same time, and a failure names the language.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from remoting.request_code import RequestCode
from store.message import Message
from tests.interop import harness
from tests.interop.grpc_drivers import LANGUAGES, GrpcDriver
from tests.interop.processes import wait_until
from tests.support.our_broker import FrameClient, drain

QUEUES = 2
BROKER = {
    "recallMessageEnable": "true",
    "timerWheelEnable": "true",
    # A transaction is asked for a second after its time, as early as 5.3.3 can.
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "2000",
    # Java writes down after 3 s otherwise what has ended, and asks about it before that.
    "transactionOpBatchInterval": "100",
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeTimerLog": str(1 << 20),
    # Lite topics.
    "enableLmq": "true",
    "enableMultiDispatch": "true",
}

_Answer = TypeVar("_Answer")


class ProxyWorld:
    """The servers and the clients; started one after the other, ended together."""

    def __init__(self, directory: Path, broker_kind: str, namesrv_kind: str) -> None:
        self._directory = directory
        self._names = itertools.count(1)
        self.namesrv = harness.name_server(namesrv_kind, directory / "namesrv")
        self.namesrv.start()
        where = directory / "broker"
        self.broker = harness.broker(broker_kind, where, self.namesrv.address, conf=BROKER)
        self.proxy = harness.proxy(directory / "proxy", self.namesrv.address)
        self.drivers: dict[str, GrpcDriver] = {}

    def start(self) -> ProxyWorld:
        self.broker.start()
        self.proxy.start()
        for language in LANGUAGES:
            where = self._directory / language
            self.drivers[language] = GrpcDriver(language, self.proxy.endpoints, where)
        return self

    def end(self) -> None:
        for driver in self.drivers.values():
            driver.close()
        self.proxy.stop()
        self.broker.end()
        self.namesrv.stop()

    def log_tails(self) -> str:
        """What the servers said last."""
        return "\n".join(one.log_tail() for one in (self.broker, self.proxy))

    def name(self, kind: str) -> str:
        """One that nobody else has."""
        return f"{kind}-{next(self._names)}"

    def topic(self, message_type: str, queues: int = QUEUES) -> str:
        """A new topic for messages of a type; the name server knows it."""
        topic = self.name(message_type.lower())
        fields = {**_fields(topic, queues), "attributes": f"+message.type={message_type}"}
        with self.broker.client() as client:
            client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        wait_until(lambda: self._has_route(topic), f"route of {topic}")
        return topic

    def _has_route(self, topic: str) -> bool:
        host, _, port = self.namesrv.address.rpartition(":")
        with FrameClient((host, int(port))) as client:
            opaque = client.post(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            return client.take(opaque).code == 0

    def group(self, **settings: Any) -> str:
        """A new group that the broker has settings of."""
        group = self.name("group")
        body = json.dumps({"groupName": group, **settings}).encode()
        with self.broker.client() as client:
            client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        return group

    def stored(self, topic: str, queues: int = QUEUES) -> list[Message]:
        """What the broker hands out of a topic, queue after queue."""
        with self.broker.client() as client:
            return [one for number in range(queues) for one in drain(client, topic, number)]

    def dead(self, topic: str) -> list[Message]:
        """The dead letters there are in a topic that its first one makes; only writes are allowed
        there, so it is opened."""
        with self.broker.client() as client:
            found = client.take(client.post(RequestCode.GET_TOPIC_CONFIG, {"topic": topic}))
            if found.code != 0:
                return []
            client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, _fields(topic, 1))
            return drain(client, topic, 0)

    def each(self, do: Callable[[GrpcDriver], _Answer]) -> Mapping[str, _Answer]:
        """What `do` gives for each language, at the same time."""

        def named(driver: GrpcDriver) -> _Answer:
            try:
                return do(driver)
            except BaseException as error:
                error.add_note(f"with the {driver.language} client")
                raise

        with ThreadPoolExecutor(len(self.drivers)) as pool:
            begun = {name: pool.submit(named, driver) for name, driver in self.drivers.items()}
            return {name: future.result() for name, future in begun.items()}


def _fields(topic: str, queues: int) -> dict[str, object]:
    """The header of 17, as mqadmin writes it."""
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }
