"""A large cluster that does not exist: many brokers on ports of loopback, topics, groups, clients.

Each broker counts what it is asked. `python -m tests.console.scale_cluster` prints what the console
costs with 200 brokers, 10,000 topics, 1,000 groups and 5,000 clients, by one browser and by fifty.
"""

from __future__ import annotations

import json
import resource
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from starlette.testclient import TestClient

from console.server import Console, ConsoleOptions
from remoting.remoting_command import RemotingCommand
from remoting.remoting_server import RemotingServer
from remoting.request_code import RequestCode
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_processor import ConnectionLike, Route
from remoting.selector_loop import SelectorLoop
from tests.support.deadline import wait_until
from tools.admin_client import NameServers

Body = Callable[[RemotingCommand], Any]
PAGES: Final = (
    *(
        "/",
        "/replication",
        "/topics",
        "/topics?sort=topic&desc=1",
        "/topics?q=99",
        "/groups",
        "/groups?page=2",
    ),
    *("/search?q=topic-5", "/topic?name=topic-00001", "/group?name=group-0001", "/settings"),
    *("/connections", "/timers", "/pop", "/transactions", "/sends", "/replication/history"),
)


class Peer:
    """One process of the cluster: what it answers, and how often it was asked."""

    def __init__(self, answers: dict[int, Body]) -> None:
        self.answers = answers
        self.asked: Counter[int] = Counter()

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """As a processor."""
        self.asked[request.code] += 1
        answer = self.answers.get(request.code)
        if answer is None:
            return request.response(3, f"request type {request.code} not supported")
        return request.response(0, body=json.dumps(answer(request)).encode())


class ScaleCluster:
    """A name server and its brokers, within one loop."""

    def __init__(self, stack: ExitStack, brokers: int, topics: int, groups: int, clients: int):
        self.loop = SelectorLoop("scale-cluster")
        self.topics = [f"topic-{n:05}" for n in range(topics)]
        self.groups = [f"group-{n:04}" for n in range(groups)]
        self._clients = max(clients // max(brokers, 1), 1)
        self.brokers: dict[str, Peer] = {}
        self._stack = stack
        for number in range(brokers):
            peer = Peer(self._broker_answers(number))
            self.brokers[self._serve(peer)] = peer
        self.names = Peer(
            {
                int(RequestCode.GET_BROKER_CLUSTER_INFO): lambda _request: self._cluster(),
                int(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER): lambda _request: {
                    "topicList": [*self.topics, *(f"%RETRY%{group}" for group in self.groups)]
                },
                int(RequestCode.GET_ROUTEINFO_BY_TOPIC): lambda _request: self._route(),
            }
        )
        self.name_server = self._serve(self.names)
        self.loop.start()
        stack.callback(self.loop.stop)

    def _serve(self, peer: Peer) -> str:
        listening = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        routes = {int(code): Route(peer) for code in RequestCode}
        server = RemotingServer(self.loop, RequestDispatcher(routes))
        server.add_listener(listening)
        server.start()
        return f"127.0.0.1:{listening.getsockname()[1]}"

    def _cluster(self) -> dict[str, Any]:
        table = {
            f"broker-{n:03}": {
                "cluster": "C",
                "brokerName": f"broker-{n:03}",
                "brokerAddrs": {"0": address},
            }
            for n, address in enumerate(self.brokers)
        }
        return {"brokerAddrTable": table, "clusterAddrTable": {"C": list(table)}}

    def _route(self) -> dict[str, Any]:
        (first, *_) = self.brokers
        queue = {"brokerName": "broker-000", "readQueueNums": 8, "writeQueueNums": 8, "perm": 6}
        data = {"cluster": "C", "brokerName": "broker-000", "brokerAddrs": {"0": first}}
        return {"queueDatas": [{**queue, "topicSysFlag": 0}], "brokerDatas": [data]}

    def _broker_answers(self, number: int) -> dict[int, Body]:
        runtime = {
            "brokerVersionDesc": "V5_3_3",
            "putTps": "12.5 12.1 11.9",
            "getTransferredTps": "25.0 24.0 23.0",
            "commitLogDiskRatio": "0.42",
        }
        producer = {
            "clientId": "client-{}@host",
            "remoteIP": "/10.0.0.1:4711",
            "language": "JAVA",
            "version": 493,
            "lastUpdateTimestamp": 1_795_000_000_000,
        }
        replica = {"addr": "10.0.0.2:4712", "slaveAckOffset": 10, "diff": 0, "inSync": True}
        ha = {"master": True, "masterCommitLogMaxOffset": 10, "inSyncSlaveNums": 1}
        producers = {
            f"producers-{n}": [{**producer, "clientId": f"client-{number}-{n}@host"}]
            for n in range(self._clients)
        }
        return {
            int(RequestCode.GET_BROKER_RUNTIME_INFO): lambda _request: {"table": runtime},
            int(RequestCode.GET_BROKER_HA_STATUS): lambda _request: {
                **ha,
                "haConnectionInfo": [replica],
            },
            int(RequestCode.GET_ALL_PRODUCER_INFO): lambda _request: {"data": producers},
            int(RequestCode.GET_TOPIC_STATS_INFO): lambda _request: {"offsetTable": {}},
            int(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO): lambda _request: {
                "groupList": self.groups
            },
            int(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG): lambda _request: {
                "subscriptionGroupTable": {
                    group: {"groupName": group, "consumeEnable": True} for group in self.groups
                }
            },
            int(RequestCode.GET_CONSUME_STATS): lambda _request: {
                "offsetTable": {},
                "consumeTps": 0.0,
            },
        }


@contextmanager
def scale_console(
    brokers: int, topics: int = 10_000, groups: int = 1_000, clients: int = 5_000
) -> Iterator[tuple[ScaleCluster, Console, TestClient]]:
    """The cluster, a console that has seen all of it, and a browser."""
    with ExitStack() as stack, tempfile.TemporaryDirectory() as directory:
        cluster = ScaleCluster(stack, brokers, topics, groups, clients)
        audit = Path(directory) / "audit.jsonl"
        options = ConsoleOptions(NameServers.parse(cluster.name_server), audit)
        console = Console(options, stack)
        console.start(stack)

        def is_seen() -> bool:
            seen = console.watch.snapshot()
            told = [broker for broker in seen.brokers if broker.runtime.value]
            return len(told) == brokers and bool(seen.topics.value)

        wait_until(is_seen, 60)
        yield cluster, console, TestClient(console.application, base_url="http://127.0.0.1:8088")


def main() -> None:
    """Print what it costs."""
    say = sys.stdout.write
    with scale_console(200) as (cluster, _console, browser):
        for page in PAGES:
            browser.get(page)  # asks, and compiles its template
            took, size = [], 0
            for _ in range(5):
                began = time.monotonic()
                size = len(browser.get(page).content)
                took.append((time.monotonic() - began) * 1000)
            say(f"{page:34} {statistics.median(took):7.1f} ms {size / 1000:7.1f} KB\n")
        for browsers in (1, 50):
            before = sum(sum(peer.asked.values()) for peer in cluster.brokers.values())
            began = time.monotonic()
            with ThreadPoolExecutor(browsers) as pool:
                list(pool.map(lambda n: browser.get(PAGES[n % len(PAGES)]), range(browsers * 20)))
            time.sleep(max(0.0, 30 - (time.monotonic() - began)))
            seconds = time.monotonic() - began
            after = sum(sum(peer.asked.values()) for peer in cluster.brokers.values())
            rate = (after - before) / seconds / len(cluster.brokers)
            say(f"{browsers} browsers: {rate:.2f} requests a second and broker\n")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        say(f"memory at most {peak:.0f} MiB, the cluster's own included\n")


if __name__ == "__main__":
    main()
