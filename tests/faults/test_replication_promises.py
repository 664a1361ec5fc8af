"""What SEND_OK means for the slave, at each ack level, seen at the very moment of each answer.

Real brokers, one message after the other; the slave's control page says what it had published and
flushed when the master's answer was there (docs/replication.md, "What is promised").
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ha.control_slots import REPLICA_COUNT
from store.control_slots import FLUSHED_OFFSET, MAX_PHY_OFFSET
from tests.support.broker_group import ASYNC_MASTER, SLAVE, SYNC_MASTER, TOPIC, Group, counters_of
from tests.support.deadline import wait_until

SEND_OK = 0
MESSAGES = 300


@pytest.mark.parametrize(
    ("level", "slot"),
    [("received", MAX_PHY_OFFSET), ("validated", MAX_PHY_OFFSET), ("flushed", FLUSHED_OFFSET)],
)
def test_an_acknowledged_message_is_as_safe_as_the_level_says(
    tmp_path: Path, level: str, slot: int
) -> None:
    with Group(tmp_path).running() as group:
        group.start(group.first, SYNC_MASTER, slaveTimeout=20_000)
        # The timed flush is off: what is flushed was flushed for an acknowledgement.
        group.start(
            group.second,
            SLAVE,
            haAckLevel=level,
            flushIntervalCommitLog=600_000,
            flushCommitLogThoroughInterval=600_000,
        )
        with (
            group.first.client(timeout_s=30) as client,
            counters_of(group.first) as master,
            counters_of(group.second) as slave,
        ):
            wait_until(lambda: master[REPLICA_COUNT] == 1, 20)
            for number in range(MESSAGES):
                sent = client.send(TOPIC, number % 4, b"x" * (number % 50))
                assert sent.code == SEND_OK
                assert slave[slot] > sent.phy_offset


def test_an_asynchronous_slave_lacks_nothing_after_an_orderly_stop(tmp_path: Path) -> None:
    with Group(tmp_path).running() as group:
        group.start(group.first, ASYNC_MASTER)
        group.start(group.second, SLAVE)
        with (
            group.first.client() as client,
            counters_of(group.first) as master,
            counters_of(group.second) as slave,
        ):
            wait_until(lambda: master[REPLICA_COUNT] == 1, 20)
            opaques = [client.post_send(TOPIC, 0, bytes(20_000)) for _ in range(200)]
            answers = [client.take_send(opaque) for opaque in opaques]
            assert group.first.terminate() == 0
            assert {answer.code for answer in answers} == {SEND_OK}
            assert slave[MAX_PHY_OFFSET] > answers[-1].phy_offset
