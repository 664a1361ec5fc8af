"""A commit of the fast route waits where others wait for the log's next file."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.message_codec import TRANSACTION_COMMIT
from tests.broker.hot_path_world import send_request
from tests.broker.transaction.test_end_transaction_route import PROPERTIES, Side
from tests.broker.transaction_world import COMMIT, Half, end_request


@pytest.mark.parametrize("fast", [True, False])
def test_a_commit_that_would_fit_the_file_does_not_overtake(tmp_path: Path, fast: bool) -> None:
    side = Side(tmp_path, fast=fast, file_size=4096, files=1)
    side.ask(send_request(b"half", properties=PROPERTIES))
    side.flush()
    half = Half(*side.last_half())
    assert side.ask(send_request(b"x" * 3_200)) == []
    before = side.hot.log.position
    assert before + 1_000 < side.hot.file_size
    assert side.ask(end_request(half, COMMIT)) == []
    assert side.hot.log.position == before
    side.hot.allocate(1)
    side.hot.turn()
    side.hot.dispatch()
    assert [answer.code for answer in side.client.answers()] == [0, 0]
    waited = [record for record in side.hot.records() if record.topic == "T"][-2:]
    assert [len(record.body) for record in waited] == [3_200, 4]
    assert waited[1].sys_flag & TRANSACTION_COMMIT
    side.hot.close()
