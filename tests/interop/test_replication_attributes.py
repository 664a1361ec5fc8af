"""A topic with attributes of 5.x reaches slaves of every kind, and stays when it changes; so do
5,000 topics and groups, which a slave of 5.5, and ours, asks for page by page.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop import harness
from tests.interop.processes import wait_until
from tests.interop.replication import Group, ask, make_many, wait_same_tables

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(300)]

_TABLES_S = 100.0
"""A 5.3.3 slave asks once a minute: that one sees the second change only."""


def attributes(broker: harness.Broker) -> dict[str, str] | None:
    found = ask(broker, 21)["topicConfigTable"].get("Typed", {}).get("attributes")
    return None if found is None else dict(found)


def test_slaves_of_every_kind(tmp_path: Path, broker_kind: str, namesrv_kind: str) -> None:
    if broker_kind != "ours":
        pytest.skip("about our master")
    namesrv = harness.name_server(namesrv_kind, tmp_path / "namesrv").start()
    kinds = ("ours", "ours", "java-4.9", harness.JAVA_5)
    group = Group(tmp_path, namesrv.address, kinds).start()
    ours, java_49, _ = group.slaves
    try:
        make_many(group.master)
        for change, expected, slaves in (
            ("+message.type=FIFO", {"message.type": "FIFO"}, (ours, java_49)),
            ("+message.type=DELAY", {"message.type": "DELAY"}, group.slaves),
        ):
            fields = {
                "topic": "Typed",
                "defaultTopic": "TBW102",
                "readQueueNums": 3,
                "writeQueueNums": 3,
                "perm": 6,
                "topicFilterType": "SINGLE_TAG",
                "attributes": change,
            }
            with group.master.client() as master:
                assert master.call(17, fields).code == 0
            for slave in slaves:
                if slave is not java_49:  # Which knows no attributes.
                    wait_until(
                        lambda slave=slave, expected=expected: attributes(slave) == expected,  # type: ignore[misc]
                        "the slave has the attributes",
                        _TABLES_S,
                    )
                wait_same_tables(group.master, slave, _TABLES_S)
    finally:
        group.end()
        namesrv.stop()
