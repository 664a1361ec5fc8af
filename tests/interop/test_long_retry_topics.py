"""Slaves of both versions behind our master when pop makes a retry topic with V2 records.

A 5.3.3 slave dispatches them as ours does. A 4.9.7 slave copies them and dispatches nothing from
the first one on (docs/pop.md): why autoMessageVersionOnTopicLen=false is there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import harness
from tests.interop.processes import wait_until
from tests.interop.replication import Group, assert_same_log, wait_caught_up
from tests.support.pop_client import PopClient

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC, GROUP_NAME = "LongRetry".ljust(80, "x"), "GLongRetry".ljust(80, "y")
RETRY = f"%RETRY%{GROUP_NAME}_{TOPIC}"


@pytest.mark.parametrize(
    ("kind", "dispatches"),
    [(harness.JAVA_5, True), pytest.param("java-4.9", False, marks=pytest.mark.long)],
)
def test_a_java_slave_of_our_master(
    tmp_path: Path, namesrv: harness.NameServer, kind: str, dispatches: bool
) -> None:
    conf = {"popCkStayBufferTime": "100"}
    group = Group(
        tmp_path,
        namesrv.address,
        ("ours", kind),
        role="ASYNC_MASTER",
        name=f"long-{kind}",
        conf=conf,
    )
    try:
        group.start()
        [slave] = group.slaves
        with group.master.client() as frames:
            client = PopClient(frames, GROUP_NAME, group.master.name)
            wait_until(lambda: frames.send(TOPIC, 0, b"before").code == 0, "a send")
            wait_until(lambda: len(client.pop(TOPIC, invisibleTime=1_000).messages) == 1, "a pop")
            wait_until(lambda: frames.offset(30, RETRY, 0) == 1, "its copy")
            assert frames.send(TOPIC, 0, b"behind").code == 0
            assert_same_log(group.master, slave, wait_caught_up(group))
        with slave.client() as frames:
            if dispatches:
                wait_until(lambda: frames.offset(30, TOPIC, 0) == 2, "both on the slave")
                assert frames.offset(30, RETRY, 0) == 1
            else:
                wait_until(lambda: frames.offset(30, TOPIC, 0) == 1, "the first on the slave")
                assert frames.offset(30, RETRY, 0) == 0
    finally:
        group.end()
