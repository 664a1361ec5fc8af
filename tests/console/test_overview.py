"""The overview: what is not well first, then every broker with its rates."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from console.figures import CLUSTER, IN_TPS, OUT_TPS
from console.health import group_url
from console.history import History
from console.lanes import Lanes
from console.page import Page, Query, Reader
from console.snapshot import BrokerSeen, ClusterSnapshot, Metrics, Told
from console.tables import TableCell
from console.views.overview import broker_state, overview, rates
from tests.console.pages import NOW, Answers
from tools.admin_client import BrokerAddress

RUNTIME = {
    "brokerVersionDesc": "V5_3_3",
    "putTps": "1.5 2 3",
    "getTransferedTps": "4.25 5 6",
    "commitLogDiskRatio": "0.25",
}
MASTER = BrokerSeen(BrokerAddress("c", "g/h", 0, "m:1"), runtime=Told(RUNTIME, NOW))
NEW = BrokerSeen(BrokerAddress("c", "g/h", 1, "s:1"))


def page(*brokers: BrokerSeen) -> Page:
    snapshot = ClusterSnapshot(brokers=brokers, names={"ns:1": Told({}, NOW)})
    lanes = cast(Lanes, Answers())
    reader = Reader(snapshot, None, lanes, None, lambda _account: None, (), NOW, NOW)  # type: ignore[arg-type,return-value]
    return overview(reader, Query({}))


def test_rates_version_and_disk_of_each_broker() -> None:
    first, second = page(MASTER, NEW).tables[1].data()
    assert (first["inTps"], first["outTps"], first["space"]) == (1.5, 4.25, 0.25)
    assert (first["version"], first["state"]) == ("V5_3_3", "master")
    assert (second["inTps"], second["outTps"], second["space"]) == (None, None, None)
    assert (second["version"], second["state"]) == (None, "unknown")


def test_disk_readiness_and_restarts_of_one_of_ours() -> None:
    samples = {
        "rocketmq_ready": [({}, 0.0)],
        "rocketmq_process_restarts_total": [({"process": "ha"}, 2.0), ({"process": "store"}, 1.0)],
        "rocketmq_store_disk_used_ratio": [({"directory": "store"}, 0.625)],
    }
    ours = replace(MASTER, metrics=Told(Metrics(samples), NOW))
    first, java = page(ours, replace(MASTER, place=NEW.place)).tables[1].data()
    assert (first["space"], first["ready"], first["restarts"]) == (0.625, "not ready", 3)
    assert (java["space"], java["ready"], java["restarts"]) == (0.25, None, None)


def test_what_is_not_well_leads_to_its_group() -> None:
    found = page(MASTER, NEW)
    (finding,) = found.tables[0].rows
    cell = finding[1]
    assert isinstance(cell, TableCell)
    assert cell.url == group_url("c", "g/h")
    assert found.context["verdict"] == "1 thing is not known."


def test_states() -> None:
    gone = BrokerSeen(MASTER.place, registered=False)
    silent = BrokerSeen(MASTER.place, ha=Told(error="dead", error_at_ms=NOW))
    slave = BrokerSeen(NEW.place, runtime=Told(RUNTIME, NOW))
    found = [broker_state(broker) for broker in (MASTER, NEW, gone, silent, slave)]
    assert found == ["master", "unknown", "gone", "silent", "slave"]


def test_rates_are_those_of_the_history() -> None:
    history = History()
    told = {(CLUSTER, IN_TPS): 5.0, (CLUSTER, OUT_TPS): 7.0, ("b:1", IN_TPS): 9.0}
    history.add(NOW - 10_000, told)
    lanes = cast(Lanes, Answers())
    reader = Reader(ClusterSnapshot(), history, lanes, None, lambda _a: None, (), NOW, NOW)  # type: ignore[arg-type,return-value]
    data = rates(reader, Query({})).json_data()
    assert [(line["name"], max(filter(None, line["values"]))) for line in data["series"]] == [
        ("in", 5.0),
        ("out", 7.0),
    ]
