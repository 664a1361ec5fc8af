"""ControllerMetrics: what a controller counts, and what it shows of its groups, as rows.

Counted on the loop, in the pools and on the store's thread, under a lock; read by the threads of
the HTTP server. What 5.3.3's controller exports has its names, labels and units
(ControllerMetricsConstant: no prefix; a "dledger operation" is a write to the store), the rest
begins with rocketmq_controller_. Only a leader shows groups: others' are old.

Tested by tests/controller/test_controller_metrics.py.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterable
from typing import Final

from controller.controller_seen import ControllerSeen, GroupRow
from controller.election import Choice
from remoting.metrics.metric import Labels, Metric, Rows, counter, gauge, histogram
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode

BASE_LABELS: Final = ("address", "group", "peer_id")
"""On every metric, as in 5.3.3: this controller's address, its controllers' name, its id."""
_BUCKETS: Final = tuple(float(n * 10**power) for power in range(7) for n in (1, 3, 5))
_MICROSECONDS: Final = (*_BUCKETS, 1e7)
_US_PER_MS: Final = 1_000
_US_PER_S: Final = 1_000_000
_SET: Final = ("cluster", "broker_set")
_STORED: Final = ("dledger_operation", "dLedger_operation_status")

# fmt: off
ROLE: Final = gauge("role", "3 leader, 2 follower, 1 no leader is known")
ACTIVE_BROKER_NUM: Final = gauge("active_broker_num", "brokers whose heartbeats come", _SET)
REQUEST_TOTAL: Final = counter("request_total",
    "requests; failed: refused or an error, timeout: not carried out, as it waited too long",
    ("request_type", "request_handle_status"))
REQUEST_LATENCY: Final = histogram("request_latency_microseconds",
    "time from a request to its answer", ("request_type",), _MICROSECONDS)
DLEDGER_OP_TOTAL: Final = counter("dledger_op_total", "writes to the store", _STORED)
DLEDGER_OP_LATENCY: Final = histogram("dledger_op_latency_microseconds",
    "duration of a write to the store", _STORED, _MICROSECONDS)
ELECTION_TOTAL: Final = counter("election_total", "elections", (*_SET, "election_result"))

READY: Final = gauge("rocketmq_controller_ready", "1 while the controller is ready (see /readyz)")
GROUPS: Final = gauge("rocketmq_controller_groups", "number of groups of brokers")
WAITING: Final = gauge("rocketmq_controller_waiting_requests", "requests that wait for the store")
READ_FAILURES: Final = counter("rocketmq_controller_store_read_failures_total",
    "reads of the store that failed")
WITHOUT_MASTER: Final = gauge("rocketmq_controller_group_without_master",
    "1 while the group has no living master", _SET)
MASTER: Final = gauge("rocketmq_controller_group_master_id",
    "broker id of the group's master; 0: none", _SET)
MASTER_EPOCH: Final = gauge("rocketmq_controller_group_master_epoch",
    "elections and losses of a master so far", _SET)
SET_EPOCH: Final = gauge("rocketmq_controller_group_sync_state_set_epoch",
    "changes of the SyncStateSet so far", _SET)
SET_SIZE: Final = gauge("rocketmq_controller_group_sync_state_set_size",
    "brokers that have every acknowledged message", _SET)
BROKERS: Final = gauge("rocketmq_controller_group_brokers", "brokers that have an id", _SET)
# fmt: on

COUNTED: Final = (
    *(REQUEST_TOTAL, REQUEST_LATENCY, DLEDGER_OP_TOTAL, DLEDGER_OP_LATENCY),
    *(ELECTION_TOTAL, READ_FAILURES),
)
METRICS: Final = (
    *(ROLE, READY, GROUPS, WAITING, ACTIVE_BROKER_NUM),
    *(WITHOUT_MASTER, MASTER, MASTER_EPOCH, SET_EPOCH, SET_SIZE, BROKERS),
    *COUNTED,
)
_APPEND: Final = "append"
_REQUEST_TYPES: Final = {
    RequestCode.BROKER_HEARTBEAT: "controller_broker_heartbeat",
    RequestCode.UPDATE_CONTROLLER_CONFIG: "controller_update_controller_config",
    RequestCode.GET_CONTROLLER_CONFIG: "controller_get_controller_config",
    RequestCode.CLEAN_BROKER_DATA: "controller_clean_broker_data",
}
"""Of 5.3.3's enum, where they are not those of RequestCode."""
_STATUS: Final = {
    ResponseCode.SYSTEM_ERROR: "failed",
    ResponseCode.NO_PERMISSION: "failed",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "failed",
    ResponseCode.SYSTEM_BUSY: "timeout",
}


class ControllerMetrics:
    """See the module. An AnswerObserver. Guarded by: its lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Metric, dict[Labels, list[float]]] = {one: {} for one in COUNTED}
        self._counts[READ_FAILURES][()] = [0.0]
        for status in ("success", "failed"):
            self._counts[DLEDGER_OP_TOTAL][_APPEND, status] = [0.0]

    def answered(
        self, request_code: int, code: int, elapsed_ms: float, *, oneway: bool = False
    ) -> None:
        """A request was answered."""
        name = _request_type(request_code)
        self._count(REQUEST_TOTAL, (name, _STATUS.get(ResponseCode(code), "success")))
        self._observe(REQUEST_LATENCY, (name,), elapsed_ms * _US_PER_MS)

    def elected(self, cluster_name: str, broker_name: str, choice: Choice) -> None:
        """An election has ended so, and is stored."""
        if choice.stays:
            result = "keep_current_master"
        else:
            result = "no_master_elected" if choice.elected is None else "new_master_elected"
        self._count(ELECTION_TOTAL, (cluster_name, broker_name, result))

    def wrote(self, elapsed_s: float, *, failed: bool) -> None:
        """A write to the store has ended."""
        labels = (_APPEND, "failed" if failed else "success")
        self._count(DLEDGER_OP_TOTAL, labels)
        self._observe(DLEDGER_OP_LATENCY, labels, elapsed_s * _US_PER_S)

    def read_failed(self) -> None:
        """A read of the store failed."""
        self._count(READ_FAILURES, ())

    def collect(self, seen: ControllerSeen) -> Iterable[tuple[Metric, Rows]]:
        """All of it, with the controller as it is now."""
        with self._lock:
            counted = {
                metric: [(labels, list(values)) for labels, values in series.items()]
                for metric, series in self._counts.items()
            }
        shown = _shown(seen)
        return [(metric, counted.get(metric) or shown.get(metric, [])) for metric in METRICS]

    def _count(self, metric: Metric, labels: Labels) -> None:
        with self._lock:
            self._counts[metric].setdefault(labels, [0.0])[0] += 1

    def _observe(self, metric: Metric, labels: Labels, value: float) -> None:
        with self._lock:
            values = self._counts[metric].setdefault(labels, [0.0] * metric.size)
            values[bisect.bisect_left(metric.buckets, value)] += 1
            values[-1] += value


def _request_type(code: int) -> str:
    try:
        known = RequestCode(code)
    except ValueError:
        return "unknown"
    if known.name.startswith("CONTROLLER_"):
        return known.name.lower()
    return _REQUEST_TYPES.get(known, "unknown")


def _shown(seen: ControllerSeen) -> dict[Metric, Rows]:
    rows: dict[Metric, Rows] = {
        ROLE: [((), [float(seen.role)])],
        READY: [((), [float(not seen.why_not_ready)])],
        WAITING: [((), [float(seen.waiting)])],
    }
    if seen.is_leader:
        rows[GROUPS] = [((), [float(len(seen.groups))])]
        for metric, number in _COLUMNS.items():
            rows[metric] = [(one[:2], [float(one[number])]) for one in seen.groups]
    return rows


_COLUMNS: Final = {
    metric: GroupRow._fields.index(name)
    for metric, name in (
        (ACTIVE_BROKER_NUM, "alive"),
        (WITHOUT_MASTER, "is_without_master"),
        (MASTER, "master_id"),
        (MASTER_EPOCH, "master_epoch"),
        (SET_EPOCH, "sync_state_set_epoch"),
        (SET_SIZE, "sync_state_set_size"),
        (BROKERS, "brokers"),
    )
}
