"""What 10,000 topics cost: `bin/bench topics` (or `python -m tests.bench.topics`).

Fills a store of --topics times --queues queues with --messages messages each, then starts the
broker again: after a kill with every queue written since its start, after an orderly stop (how long
that took is printed, too: it has 10 s for all), and after a kill with no queue written. Measured is
the time from the start of the supervisor to the boot line, which is printed once the name server
has answered the registration, with the processor time of all processes up to there; after each
start the anonymous memory, descriptors and maps of each process, and once what the broker uses when
nobody asks anything of it. In between the registration by itself, over TCP to the embedded name
server, as a second broker with the same topics: the first, one whose edition has not changed (every
30 s by default), one whose edition has, one topic (registerIncrement); and a new topic, from
mqadmin's request at the broker until the name server has its route.

Processor times can be compared on a busy machine, times not: the share of the machine that its host
gave to others is printed beside them.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from broker.out.broker_outer_api import BrokerIdentity, BrokerOuterAPI
from remoting.body.register_broker import RegisterBrokerBody
from remoting.body.topic_config import TopicConfig, TopicConfigSerializeWrapper
from remoting.remoting_client import RemotingClient
from remoting.remoting_config import RemotingClientConfig
from remoting.remoting_serializable import dumps_java_pretty
from tests.bench.broker_figures import Process, allow_descriptors, look_at, verdict
from tests.bench.idle import watch
from tests.bench.measuring import MIB, cpu_s, quiet_cpu_s
from tests.interop.processes import wait_until
from tests.support.our_broker import FrameClient, OurBroker
from tests.support.stolen_time import StolenTime

BOOT_GOAL_S: Final = 10.0
REGISTRATION_GOAL_S: Final = 1.0
MEMORY_GOAL: Final = 600 * MIB
DESCRIPTORS_GOAL: Final = 21_000
"""What a process may have by default nearly everywhere."""
_WINDOW: Final = 200
_LONG_S: Final = 600.0
_ROUNDS: Final = 5
_WATCH_S: Final = 35.0
"""A regular registration and a few rounds of all else are in it."""


def name_of(number: int) -> str:
    """A topic of the benchmark; as long as such names are."""
    return f"OrderTopic-{number:05}"


def write_topics(store_dir: Path, topics: int, queues: int) -> None:
    """config/topics.json of a broker that has them already."""
    table = {
        name_of(number): TopicConfig(
            topic_name=name_of(number), read_queue_nums=queues, write_queue_nums=queues
        )
        for number in range(topics)
    }
    path = store_dir / "config" / "topics.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(
        dumps_java_pretty(TopicConfigSerializeWrapper(topic_config_table=table).to_json())
    )


def fill(broker: OurBroker, topics: int, queues: int, messages: int) -> None:
    """`messages` to every queue, and until they are dispatched."""
    body, last = bytes(128), name_of(topics - 1)
    with broker.client(timeout_s=_LONG_S) as client:
        wanted = client.offset(30, last, queues - 1) + messages
        opaques: list[int] = []
        for _ in range(messages):
            for topic in range(topics):
                for queue_id in range(queues):
                    opaques.append(client.post_send(name_of(topic), queue_id, body))
                    if len(opaques) >= _WINDOW:
                        _take(client, opaques)
        _take(client, opaques)
        wait_until(
            lambda: client.offset(30, last, queues - 1) >= wanted, "dispatched", _LONG_S, 0.1
        )


def _take(client: FrameClient, opaques: list[int]) -> None:
    for opaque in opaques:
        sent = client.take_send(opaque)
        assert sent.code == 0, sent
    opaques.clear()


class Bench:
    """One store, started again and again."""

    def __init__(self, root: Path, topics: int, queues: int) -> None:
        self.broker = OurBroker(
            root, mappedFileSizeCommitLog=1024 * MIB, mappedFileSizeConsumeQueue=6_000_000
        )
        self.topics, self.queues = topics, queues

    def start(self, what: str) -> None:
        """Start and print how long it took."""
        stolen = StolenTime()
        began = time.monotonic()
        self.broker.start(wait=False)
        self.broker.wait_booted(_LONG_S)
        seconds = time.monotonic() - began
        used = cpu_s(self.broker.pid)
        print(
            f"boot {what:22}{seconds:7.2f} s (goal {BOOT_GOAL_S:.0f}: "
            f"{verdict(seconds, BOOT_GOAL_S)}), {used:.2f} s of processor time, "
            f"{stolen.share():.0%} of the machine stolen",
            flush=True,
        )

    def stop(self) -> None:
        """Stop in order, every queue still dirty."""
        began = time.monotonic()
        code = self.broker.terminate(_LONG_S)
        seconds = time.monotonic() - began
        clean = (self.broker.store_dir / "clean.exit").exists()
        print(
            f"stop {seconds:7.2f} s, exit code {code}, "
            f"{'clean' if clean else 'NOT CLEAN: the next start recovers'}",
            flush=True,
        )

    def rest(self) -> None:
        """Wait until what follows a boot or a load is done; then memory and descriptors."""
        quiet_cpu_s(self.broker.pid, 60)
        print_holdings(look_at(self.broker.pid))

    @contextlib.contextmanager
    def api(self) -> Iterator[BrokerOuterAPI]:
        """A second broker's connection to the name server."""
        client = RemotingClient(RemotingClientConfig())
        client.start()
        try:
            yield BrokerOuterAPI(client, [f"127.0.0.1:{self.broker.ports['namesrv']}"])
        finally:
            client.shutdown()


def print_holdings(processes: list[Process]) -> None:
    """Memory, descriptors and maps of each process, and the goals."""
    for each in processes:
        print(
            f"    {each.name:12} {each.anonymous / MIB:7.1f} MiB anonymous, "
            f"{each.descriptors:5} descriptors, {each.maps:5} maps"
        )
    memory = sum(each.anonymous for each in processes)
    most = max(each.descriptors for each in processes)
    print(
        f"    together     {memory / MIB:7.1f} MiB (goal {MEMORY_GOAL / MIB:.0f}: "
        f"{verdict(memory, MEMORY_GOAL)}), most descriptors {most} (goal {DESCRIPTORS_GOAL}: "
        f"{verdict(most, DESCRIPTORS_GOAL)})",
        flush=True,
    )


def register(bench: Bench) -> None:
    """Time the registrations of a second broker with the same topics."""
    broker = bench.broker
    namesrv = broker.child("namesrv")
    identity = BrokerIdentity(
        cluster_name="DefaultCluster",
        broker_name="second",
        broker_id=0,
        broker_addr="127.0.0.1:1",
        ha_server_addr="127.0.0.1:2",
    )
    with broker.client(timeout_s=_LONG_S) as client:
        body = client.call(21, {}).body
    wrapper = TopicConfigSerializeWrapper.from_json_bytes(body)
    encodings: dict[str, Callable[[], bytes]] = {
        "plain": lambda: RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode(),
        "compressed": lambda: RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode(
            compressed=True
        ),
    }
    for name, encode in encodings.items():
        print(f"body, {name:24} {len(encode()):9} bytes, {1e3 * median_cpu_s(encode):7.1f} ms")
    with bench.api() as api:

        def once(topics: TopicConfigSerializeWrapper) -> None:
            results = api.register_broker_all(identity, topics, timeout_ms=60_000, compressed=False)
            assert results, "the name server did not answer"

        edition = wrapper.data_version

        def changed() -> TopicConfigSerializeWrapper:
            nonlocal edition
            edition = edition.next_version(int(time.time() * 1000))
            return TopicConfigSerializeWrapper(
                data_version=edition, topic_config_table=wrapper.topic_config_table
            )

        def one_topic() -> TopicConfigSerializeWrapper:
            whole = changed()
            name = name_of(0)
            return TopicConfigSerializeWrapper(
                data_version=whole.data_version,
                topic_config_table={name: whole.topic_config_table[name]},
            )

        time_it("registration, the first", namesrv, lambda: once(wrapper), 1)
        time_it("registration, unchanged", namesrv, lambda: once(wrapper))
        time_it("registration, new edition", namesrv, lambda: once(changed()))
        time_it("registration, one topic", namesrv, lambda: once(one_topic()))
        api.unregister_broker_all(identity)
    with (
        broker.client(timeout_s=_LONG_S) as client,
        FrameClient(("127.0.0.1", broker.ports["namesrv"]), _LONG_S) as routes,
    ):
        numbers = iter(range(_ROUNDS))
        time_it("new topic (17), at the route", broker.pid, lambda: create(client, routes, numbers))


def create(client: FrameClient, routes: FrameClient, numbers: Iterator[int]) -> None:
    """mqadmin's updateTopic, and until the name server has the route."""
    topic = f"new-{next(numbers)}"
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 8,
        "writeQueueNums": 8,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }
    answer = client.call(17, fields)
    assert answer.code == 0, answer.remark
    wait_until(lambda: routes.call(105, {"topic": topic}).code == 0, "route", 60, 0.002)


def median_cpu_s(action: Callable[[], object]) -> float:
    """Of this process."""
    times = []
    for _ in range(_ROUNDS):
        began = time.process_time()
        action()
        times.append(time.process_time() - began)
    return statistics.median(times)


def time_it(what: str, pid: int, action: Callable[[], None], rounds: int = _ROUNDS) -> None:
    """Print the median time of `action`, and the processor time of the process `pid` in it."""
    stolen, used, times = StolenTime(), cpu_s(pid), []
    for _ in range(rounds):
        began = time.monotonic()
        action()
        times.append(time.monotonic() - began)
    used = (cpu_s(pid) - used) / rounds
    seconds = statistics.median(times)
    print(
        f"{what:30} {1e3 * seconds:7.1f} ms (goal {1e3 * REGISTRATION_GOAL_S:.0f}: "
        f"{verdict(seconds, REGISTRATION_GOAL_S)}), {1e3 * used:.0f} ms of processor time there, "
        f"{stolen.share():.0%} stolen",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--messages", type=int, default=2, help="in each queue")
    parser.add_argument("--directory", type=Path, help="where the store is made (default: $TMPDIR)")
    options = parser.parse_args()
    allow_descriptors(1_024)
    with tempfile.TemporaryDirectory(prefix="bench-topics-", dir=options.directory) as root:
        bench = Bench(Path(root), options.topics, options.queues)
        write_topics(bench.broker.store_dir, options.topics, options.queues)
        try:
            run(bench, options.messages)
        finally:
            bench.broker.crash()


def run(bench: Bench, messages: int) -> None:
    """The whole measurement."""
    queues = bench.topics * bench.queues
    print(f"{bench.topics} topics x {bench.queues} queues, {messages} messages in each queue")
    bench.start("without a queue")
    began = time.monotonic()
    fill(bench.broker, bench.topics, bench.queues, messages)
    print(f"{queues * messages} messages sent in {time.monotonic() - began:.0f} s; then")
    bench.rest()
    bench.broker.crash()
    bench.start("after a kill, all new")
    began = time.monotonic()
    fill(bench.broker, bench.topics, bench.queues, messages)
    print(f"{queues * messages} more messages sent in {time.monotonic() - began:.0f} s")
    bench.stop()
    bench.start("after that stop")
    bench.rest()
    watch("at rest", bench.broker.pid, _WATCH_S, time.sleep)
    register(bench)
    bench.broker.crash()
    bench.start("after a kill, at rest")
    bench.rest()


if __name__ == "__main__":
    main()
