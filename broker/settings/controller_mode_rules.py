"""What controller mode makes of the other settings: what it replaces, what it warns of.

Pure, but for the id, which is read from the broker's file. In the supervisor, at the start. The
role, and the id in it, are a controller's to give: RocketMQ's examples set brokerRole=SLAVE and
brokerId=-1, and anything is taken there, as in RocketMQ.

Tested by tests/broker/settings/test_controller_mode_rules.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from broker.settings.controller_mode_config import ControllerModeConfig
from conf.config_fields import field_specs
from ha.ha_config import HaConfig

_REPLACED: Final[Mapping[str, frozenset[str]]] = {
    "brokerRole": frozenset({"SLAVE"}),
    "brokerId": frozenset({"-1"}),
    "haMasterAddress": frozenset({""}),
    "haTruncateDiverged": frozenset({"false"}),
    "haPromoteUnclean": frozenset({"false"}),
    "enableSlaveActingMaster": frozenset({"false"}),
    "enableRemoteEscape": frozenset({"false"}),
    "totalReplicas": frozenset({"1"}),
}
"""Settings that count for nothing in controller mode, and the values that nobody is warned of."""
MEMBER_DEFAULTS: Final[Mapping[str, str]] = {"inSyncReplicas": "1"}
"""RocketMQ's of 5.x; without a controller a SYNC_MASTER here waits for a slave, as in 4.9."""
NO_NAME_SERVER: Final = (
    "enableControllerMode without namesrvAddr: a broker learns its master's HA port from name "
    "servers only, and could follow nobody; name those of the group with -n or namesrvAddr"
)
_FIRST_ID: Final = 1
_IDENTITY: Final = re.compile(rb"[^#]*#[^#]*#([0-9]{1,18})(?:#|\Z)")


def forced_settings(
    config: ControllerModeConfig, store_root: Path, *, sync_flush: bool
) -> dict[str, str]:
    """What takes the place of settings in controller mode: each process begins as a slave of the
    id that the controller gave. Before it has given one, the metrics dumps are those of the first.
    With SYNC_FLUSH slaves acknowledge what is on their disks: SEND_OK means that everywhere."""
    return {
        **({"haAckLevel": "flushed"} if sync_flush else {}),
        "brokerRole": "SLAVE",
        "brokerId": str(_own_id(config.identity_file(store_root))),
        "enableSlaveActingMaster": "false",
        "enableRemoteEscape": "false",
        "totalReplicas": "1",
    }


def _own_id(identity: Path) -> int:
    """A file that cannot be used is the member's to report, with its way out."""
    try:
        found = _IDENTITY.match(identity.read_bytes())
    except OSError:
        return _FIRST_ID
    return _FIRST_ID if found is None else max(int(found[1]), _FIRST_ID)


def warnings_of(
    config: ControllerModeConfig,
    ha: HaConfig,
    values: Mapping[str, str],
    sources: Mapping[str, str],
) -> tuple[str, ...]:
    """In controller mode: about settings that have no effect there, and about a weak SEND_OK;
    elsewhere at most one, about settings that only a member of a group with a controller reads.
    values: as given; sources: where."""
    if config.enable_controller_mode:
        promise = promise_of(config, in_sync_replicas=ha.in_sync_replicas)
        weak = () if is_safe(config) else (promise,)
        return (*_without_effect(values, sources), *weak)
    keys = [spec.key for spec in field_specs(ControllerModeConfig) if spec.key in sources]
    useless = [f"{key} ({sources[key]})" for key in keys if key != "enableControllerMode"]
    if not useless:
        return ()
    return (f"these settings have no effect without enableControllerMode: {', '.join(useless)}",)


def _without_effect(values: Mapping[str, str], sources: Mapping[str, str]) -> tuple[str, ...]:
    useless = [
        f"{key} ({sources[key]})"
        for key, harmless in _REPLACED.items()
        if key in sources and values[key].strip() not in harmless
    ]
    if not useless:
        return ()
    return (
        "these settings have no effect with enableControllerMode, as a controller gives the role "
        f"and the id, and epochs say what is cut: {', '.join(useless)}",
    )


def is_safe(config: ControllerModeConfig) -> bool:
    """Whether what was answered SEND_OK survives every election, whatever one machine does."""
    return config.all_ack_in_sync_state_set and config.min_in_sync_replicas > 1


def promise_of(config: ControllerModeConfig, *, in_sync_replicas: int) -> str:
    """What SEND_OK means with these settings (docs/failover.md), for the log."""
    safe = "allAckInSyncStateSet=true and minInSyncReplicas=2 are the safe mode"
    if is_safe(config):
        return (
            "SEND_OK means that every member of the SyncStateSet, "
            f"{config.min_in_sync_replicas} at least, has the message: it survives every election "
            "(safe mode)"
        )
    if config.all_ack_in_sync_state_set:
        return (
            "SEND_OK means that every member of the SyncStateSet has the message, which may be "
            f"this broker alone: the message may then be lost with its disk; {safe}"
        )
    if in_sync_replicas > 1:
        return (
            f"SEND_OK means that {in_sync_replicas} brokers have the message, and an election may "
            f"choose another one and lose it; {safe}"
        )
    return (
        "SEND_OK means that this broker has the message: what is answered while it is cut off from "
        f"its slaves, or dies before they have it, is lost by an election; {safe}"
    )
