"""haStatus of both worlds: Java's mqadmin asks our master, ours asks Java's 5.3.3 master."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop import harness
from tests.interop.driver import Driver
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until
from tests.interop.replication import (
    Group,
    fill,
    ha_status,
    kinds_id,
    wait_caught_up,
    wait_group_registered,
)

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture(
    scope="module",
    params=[("ours", "ours"), ("ours", harness.JAVA_5), (harness.JAVA_5, "ours")],
    ids=kinds_id,
)
def group(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    namesrv: harness.NameServer,
    drivers: Callable[[str], Driver],
) -> Iterator[Group]:
    name = f"status-{kinds_id(request.param)}"
    made = Group(tmp_path_factory.mktemp(name), namesrv.address, request.param, name=name).start()
    wait_group_registered(drivers("4.9.8"), namesrv.address, made)
    fill(made.master, "Status", 1 << 16)
    wait_caught_up(made)
    wait_until(lambda: ha_status(made.master)["inSyncSlaveNums"] == 1, "a slave in sync")
    yield made
    made.end()


@pytest.mark.parametrize("whose", ["java", "ours"])
def test_both_tools_show_the_slave(
    group: Group,
    whose: str,
    tmp_path: Path,
    namesrv: harness.NameServer,
    drivers: Callable[[str], Driver],
) -> None:
    (connection,) = ha_status(group.master)["haConnectionInfo"]
    arguments = ("haStatus", "-n", namesrv.address, "-b", group.master.address)
    if whose == "java":
        text = drivers(CLIENT_5).mqadmin(*arguments)
        assert re.search(r"#MasterAddr\s+" + re.escape(group.master.address), text), text
    else:
        text = harness.our_admin(tmp_path, *arguments)
        assert "1 of 1 replicas in sync" in text
    assert connection["addr"].removeprefix("/") in text
    assert str(ha_status(group.master)["masterCommitLogMaxOffset"]) in text
