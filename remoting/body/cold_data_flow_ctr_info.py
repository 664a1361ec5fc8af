"""The body of GET_COLD_DATA_FLOW_CTR_INFO (2003, 5.x). Pure data, any thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int64

_ORDER: Final = (
    *("runtimeTable", "configTable", "cgColdReadThreshold", "globalColdReadThreshold", "globalAcc"),
)
"""mqadmin prints the members as they come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccAndTimeStamp(JsonBean):
    """What one group has read. cold_acc: bytes of the present round; times: wall clock ms."""

    cold_acc: Int64 = 0
    create_time_mills: Int64 = 0
    last_cold_read_time_mills: Int64 = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdDataFlowCtrInfo(JsonBean):
    """Counters of all groups and their thresholds, in bytes of a round of five seconds."""

    runtime_table: dict[str, AccAndTimeStamp] = field(default_factory=dict)
    config_table: dict[str, Int64] = field(default_factory=dict)
    cg_cold_read_threshold: Int64 = 0
    global_cold_read_threshold: Int64 = 0
    global_acc: Int64 = 0

    def to_json(self) -> dict[str, Any]:
        """The tree, in RocketMQ's order."""
        tree = JsonBean.to_json(self)
        return {name: tree[name] for name in _ORDER}
