"""The arithmetic of the benchmarks of scale, and what they read from /proc."""

from __future__ import annotations

import os
import resource

import pytest

from tests.bench import idle, topics
from tests.bench.broker_figures import (
    Process,
    Usage,
    allow_descriptors,
    anonymous_bytes,
    look_at,
    short_name,
    usage,
    verdict,
)


def process(pid: int, *, cpu_s: float = 0.0, switches: int = 0, name: str = "store") -> Process:
    return Process(
        name=name,
        pid=pid,
        cpu_s=cpu_s,
        anonymous=0,
        descriptors=0,
        maps=0,
        switches=switches,
    )


def test_memory_is_what_the_kernel_divides_among_processes_where_it_does() -> None:
    assert anonymous_bytes("Rss: 9 kB\nPss_Anon:     12 kB\nAnonymous:  99 kB\n") == 12 * 1024
    assert anonymous_bytes("Rss: 9 kB\nAnonymous:  99 kB\n") == 99 * 1024
    with pytest.raises(ValueError, match="smaps_rollup without Pss_Anon and Anonymous"):
        anonymous_bytes("Rss: 9 kB\n")


def test_a_process_is_called_by_its_title() -> None:
    assert short_name("mqbroker: store ") == "store"
    assert short_name("python -m broker -c x") == "broker"


def test_a_look_at_this_process() -> None:
    [mine] = [each for each in look_at(os.getpid()) if each.pid == os.getpid()]
    assert mine.anonymous > 1 << 20
    assert mine.descriptors >= 3
    assert mine.maps > 10
    assert mine.cpu_s > 0


def test_usage_is_for_each_second() -> None:
    before = [process(1, cpu_s=1.0, switches=10), process(2)]
    after = [process(1, cpu_s=1.5, switches=60), process(2)]
    assert usage(before, after, 10.0) == [
        Usage(name="store", cpu=0.05, switches=5.0),
        Usage(name="store", cpu=0.0, switches=0.0),
    ]


def test_usage_of_processes_that_came_or_went_says_which() -> None:
    with pytest.raises(ValueError, match=r"\['store \(1\)'\] before, \['ha \(2\)'\] after"):
        usage([process(1)], [process(2, name="ha")], 1.0)


def test_a_goal_is_a_most() -> None:
    assert (verdict(1.0, 1.0), verdict(1.1, 1.0)) == ("held", "MISSED")


def test_more_descriptors_than_the_machine_permits_are_refused_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _kind: (1_024, 4_096))
    monkeypatch.setattr(resource, "setrlimit", lambda _kind, limits: asked.append(limits))
    allow_descriptors(1_000)
    assert asked == []
    allow_descriptors(4_096)
    assert asked == [(4_096, 4_096)]
    with pytest.raises(SystemExit) as refused:
        allow_descriptors(5_200)
    assert str(refused.value) == (
        "5200 file descriptors are needed, this shell permits 4096: raise the hard limit "
        "(ulimit -Hn, or nofile in /etc/security/limits.conf), or measure less"
    )


def test_frames_are_taken_when_they_are_whole() -> None:
    first, second = idle.frame(34, 1, {"a": 1}, b"body"), idle.frame(11, 2, {})
    data = bytearray(first + second[:-1])
    [header] = idle.take_frames(data)
    assert (header["code"], header["opaque"], header["extFields"]) == (34, 1, {"a": "1"})
    assert bytes(data) == second[:-1]
    data += second[-1:]
    assert [header["code"] for header in idle.take_frames(data)] == [11]
    assert idle.take_frames(data) == []


def test_clients_of_a_group_have_a_topic_together_and_a_queue_each() -> None:
    clients = [idle.Client(number, 3) for number in range(6)]
    assert [(each.group, each.topic, each.queue_id) for each in clients[2:5]] == [
        ("idle-0", "IdleTopic-0", 2),
        ("idle-1", "IdleTopic-1", 0),
        ("idle-1", "IdleTopic-1", 1),
    ]


def test_percentiles() -> None:
    p50, p99 = idle.percentiles([float(number) for number in range(101)])
    assert (p50, p99) == (50.0, 99.0)


def test_topics_have_names_of_one_length() -> None:
    assert (topics.name_of(7), topics.name_of(9_999)) == ("OrderTopic-00007", "OrderTopic-09999")
