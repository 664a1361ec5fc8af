"""What a send's answer says of its durability, against the brokers' control pages right then."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ha.control_slots import REPLICA_COUNT
from remoting.headers.durability import Durability, ask_for_durability, read_durability
from store.control_slots import FLUSHED_OFFSET, MAX_PHY_OFFSET
from store.message_codec import decode_message_id
from tests.support.broker_group import SLAVE, SYNC_MASTER, TOPIC, Group, counters_of
from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient

MESSAGES = 100
MEMORY, FLUSHED, REPLICATED, REPLICA_FLUSHED = Durability


def send_asking(client: FrameClient, number: int) -> tuple[int, int, Durability]:
    """Code, position, and what the answer says."""
    values = ("reported", TOPIC, TOPIC, 4, number % 4, 0, int(time.time() * 1000), 0, "", 0)
    fields: dict[str, object] = dict(zip("abcdefghij", values, strict=True))
    answer = client.call(310, {**fields, **ask_for_durability()}, b"x" * number)
    found = read_durability(answer.ext_fields)
    assert found is not None
    return answer.code, decode_message_id(answer.ext_fields["msgId"])[1], found


@pytest.mark.parametrize(
    ("flush", "level", "promised"),
    [
        ("ASYNC_FLUSH", "received", MEMORY | REPLICATED),
        ("SYNC_FLUSH", "flushed", MEMORY | FLUSHED | REPLICATED | REPLICA_FLUSHED),
    ],
)
def test_nothing_is_said_that_is_not_so(
    tmp_path: Path, flush: str, level: str, promised: Durability
) -> None:
    # The timed flush is off.
    rarely = {"flushIntervalCommitLog": 600_000, "flushCommitLogThoroughInterval": 600_000}
    with Group(tmp_path).running() as group:
        group.start(group.first, SYNC_MASTER, slaveTimeout=20_000, flushDiskType=flush, **rarely)
        group.start(group.second, SLAVE, haAckLevel=level, **rarely)
        with (
            group.first.client(timeout_s=30) as client,
            counters_of(group.first) as master,
            counters_of(group.second) as slave,
        ):
            wait_until(lambda: master[REPLICA_COUNT] == 1, 20)
            for number in range(MESSAGES):
                code, phy_offset, said = send_asking(client, number)
                # A flush that nobody waits for may have come by itself.
                assert (code, said) in ((0, promised), (0, promised | FLUSHED))
                assert slave[MAX_PHY_OFFSET] > phy_offset
                assert FLUSHED not in said or master[FLUSHED_OFFSET] > phy_offset
                assert REPLICA_FLUSHED not in said or slave[FLUSHED_OFFSET] > phy_offset
            group.second.crash()
            wait_until(lambda: master[REPLICA_COUNT] == 0, 20)
            code, _, said = send_asking(client, 0)
            assert code == 11
            assert not said & (REPLICATED | REPLICA_FLUSHED)
