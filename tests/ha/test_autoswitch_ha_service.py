"""Replication in a group with a controller, over loopback sockets and real files.

The truth is the bytes of the master's files, and what Java brokers said on the wire.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ha.member_world import FILE_SIZE, FIRST_EPOCH, Member
from tests.support.deadline import wait_until

SECRET = b"the secret of this group's tests"


def same_logs(master: Member, slave: Member, start: int = 0) -> None:
    """The slave has all of it, to the byte, and zeroes behind."""
    slave.wait_end(master.end)
    assert slave.digest(start, master.end) == master.digest(start, master.end)


@pytest.mark.parametrize("secret", [None, SECRET])
def test_a_slave_gets_the_log_and_what_is_appended(tmp_path: Path, secret: bytes | None) -> None:
    with Member(tmp_path, 1, secret=secret) as master, Member(tmp_path, 2, secret=secret) as slave:
        end = master.append(100)
        assert end > 2 * FILE_SIZE
        master.lead()
        slave.follow(master.address)
        same_logs(master, slave)
        assert slave.hellos == [(1, FIRST_EPOCH, end)]
        wait_until(lambda: master.acked() == end)
        for _ in range(20):
            end = master.append()
            wait_until(lambda end=end: master.acked() == end)
        same_logs(master, slave)
        assert [*master.connected.values()] == [2]
        wait_until(lambda: slave.confirmed[-1] == end)
        wait_until(lambda: slave.grown[-1] == end)
        assert master.refusals() == slave.refusals() == {}
