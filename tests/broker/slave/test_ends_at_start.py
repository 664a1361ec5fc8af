"""broker.slave.ends_at_start: what a slave did counts up to where the queues were then."""

from __future__ import annotations

from pathlib import Path

from broker.slave.ends_at_start import EndsAtStart
from tests.broker.hot_path_world import HotPathWorld, send_request


def test_what_comes_after_the_start_does_not_move_them(tmp_path: Path) -> None:
    hot = HotPathWorld(tmp_path, file_size=1 << 20, files=2)
    hot.topic()
    client = hot.client()

    def send() -> None:
        request = send_request(b"body")
        assert hot.send_processor.process_request(client.connection, request) is None
        hot.turn()

    at_start = EndsAtStart(hot.table, hot.log.next_offset, lambda: 7)
    assert at_start.end("T", 0) == 0
    send()
    hot.dispatch()
    send()
    at_start.note()
    assert (at_start.end("T", 0), at_start.began_ms) == (2, 7)
    send()
    assert hot.log.next_offset("T", 0) == 3
    assert at_start.end("T", 0) == 2
    assert (at_start.end("T", 9), at_start.end("none", 0)) == (0, 0)
