"""Figures of a snapshot: only what was told since the last look, summed over masters."""

from __future__ import annotations

from dataclasses import replace

from console.figures import CLUSTER, IN_TPS, LAG_BYTES, LAG_SECONDS, OUT_TPS, figures
from console.snapshot import BrokerSeen, ClusterSnapshot, HaTold, Told
from remoting.body.ha_runtime_info import HAConnectionRuntimeInfo, HARuntimeInfo
from tools.admin_client import BrokerAddress

RUNTIME = {"putTps": "10.5 9 8", "getTransferredTps": "3 2 1"}


def broker(name: str, broker_id: int, told_ms: int) -> BrokerSeen:
    replica = HAConnectionRuntimeInfo(id=f"{name}:1", diff=100, lag_seconds=2.5)
    info = HARuntimeInfo(master=broker_id == 0, ha_connection_info=[replica])
    return BrokerSeen(
        BrokerAddress("c", name, broker_id, f"{name}{broker_id}:1"),
        runtime=Told(RUNTIME, told_ms),
        ha=Told(HaTold(info, {}), told_ms),
    )


def test_rates_and_lags_by_their_owner_and_the_sum_of_masters() -> None:
    found = figures(ClusterSnapshot(brokers=(broker("a", 0, 5), broker("a", 1, 5))), 4)
    assert found["a0:1", IN_TPS] == 10.5
    assert found["a1:1", OUT_TPS] == 3.0
    assert found["a0:1 a:1", LAG_BYTES] == 100.0
    assert found["a0:1 a:1", LAG_SECONDS] == 2.5
    assert found[CLUSTER, IN_TPS] == 10.5
    assert ("a1:1 a:1", LAG_BYTES) not in found


def test_what_was_told_before_the_last_look_is_not_told_again() -> None:
    found = figures(ClusterSnapshot(brokers=(broker("a", 0, 5),)), 5)
    assert {key for key in found if key[0] != CLUSTER} == set()


def test_a_silent_master_is_not_in_the_sum() -> None:
    silent = broker("b", 0, 1)
    silent = replace(silent, runtime=silent.runtime.failed("dead", 2))
    found = figures(ClusterSnapshot(brokers=(broker("a", 0, 5), silent)), 4)
    assert found[CLUSTER, IN_TPS] == 10.5


def test_a_number_that_is_none_is_left_out() -> None:
    odd = replace(broker("a", 0, 5), runtime=Told({"putTps": "nan", "getTransferredTps": "inf"}, 5))
    found = figures(ClusterSnapshot(brokers=(odd,)), 4)
    assert ("a0:1", IN_TPS) not in found
    assert (CLUSTER, OUT_TPS) not in found
