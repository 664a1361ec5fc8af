"""The clients that bin/bench compare measures with send what they say, to a broker of ours."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.bench.client_process import ClientProcess, missing_tool
from tests.interop import harness
from tests.interop.processes import wait_until
from tests.support.our_broker import drain

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("language", ["java", pytest.param("go", marks=pytest.mark.long)])
def test_synchronous_sends_of_several_threads(tmp_path: Path, language: str) -> None:
    if missing := missing_tool(language):
        pytest.skip(f"needs {missing} on the PATH")
    with contextlib.ExitStack() as ends:
        names = harness.name_server("ours", tmp_path / "namesrv").start()
        ends.callback(names.stop)
        broker = harness.broker("ours", tmp_path / "broker", names.address)
        ends.callback(broker.kill)
        broker.start()
        client = ClientProcess(language, names.address, tmp_path / "client")
        ends.callback(client.close)
        figures = client.send("BenchClient", 8, 80, 100)
        assert (figures["threads"], figures["total"], figures["not_success"]) == (8, 80, 0)
        assert 0 < figures["p50_us"] <= figures["max_us"]
        with broker.client() as frames:
            # The first one made the topic. Dispatch follows a send.
            wait_until(
                lambda: sum(frames.offset(30, "BenchClient", q) for q in range(4)) >= 81,
                "81 messages in the queues",
            )
            queues = [drain(frames, "BenchClient", queue_id) for queue_id in range(4)]
        messages = [message for queue in queues for message in queue]
        assert len(messages) == 81
        assert {len(message.body) for message in messages} == {100}


def test_what_is_streamed_arrives_at_a_push_consumer(tmp_path: Path) -> None:
    with contextlib.ExitStack() as ends:
        names = harness.name_server("ours", tmp_path / "namesrv").start()
        ends.callback(names.stop)
        broker = harness.broker("ours", tmp_path / "broker", names.address)
        ends.callback(broker.kill)
        broker.start()
        client = ClientProcess("java-push", names.address, tmp_path / "client")
        ends.callback(client.close)
        figures = client.stream("BenchStream", 8, 500, 200, 100)
        assert (figures["total"], figures["not_success"]) == (200, 0)
        assert (figures["missing"], figures["duplicates"]) == (0, 0)
        assert 0 < figures["p50_us"] <= figures["p99_us"] <= figures["max_us"]
        assert 0 < figures["publish_p50_us"] <= figures["publish_max_us"]
        with broker.client() as frames:
            ends_of_queues = [frames.offset(30, "BenchStream", q) for q in range(8)]
        # One probe to each queue was before them.
        assert sum(ends_of_queues) == 208
        assert min(ends_of_queues) > 1


def test_a_client_that_ends_says_why(tmp_path: Path) -> None:
    client = ClientProcess("java", "127.0.0.1:1", tmp_path / "client")
    try:
        with pytest.raises(RuntimeError, match="NegativeArraySizeException"):
            client.send("T", 1, 1, -1)
    finally:
        client.close()
