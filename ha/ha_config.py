"""HaConfig: the settings of replication, with the original's names and defaults.

Read by the `ha` process; filled by `conf.config_loader` at its start, frozen afterwards. In the
original these keys are part of MessageStoreConfig.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class HaConfig:
    """Keys of replication; a key that the store also declares is set in both."""

    ha_listen_port: int = field(
        default=10912,
        metadata={
            "key": "haListenPort",
            "doc": "port for the slaves; unset it is listenPort + 1, 0 = a free one",
            "min": 0,
            "max": 65535,
        },
    )
    ha_master_address: str | None = field(
        default=None,
        metadata={
            "key": "haMasterAddress",
            "doc": "ip:port of the master's HA port; unset it is learnt from the name server",
            "important": True,
        },
    )
    ha_send_heartbeat_interval: int = field(
        default=5000,
        metadata={
            "key": "haSendHeartbeatInterval",
            "doc": "silence after which a heartbeat is sent",
            "unit": "ms",
            "min": 1,
        },
    )
    ha_housekeeping_interval: int = field(
        default=20000,
        metadata={
            "key": "haHousekeepingInterval",
            "doc": "silence after which a connection is closed",
            "unit": "ms",
            "min": 1,
        },
    )
    ha_transfer_batch_size: int = field(
        default=32768,
        metadata={
            "key": "haTransferBatchSize",
            "doc": "most log bytes of one frame",
            "unit": "bytes",
            "min": 1,
        },
    )
    ha_slave_fallbehind_max: int = field(
        default=268435456,
        metadata={
            "key": "haSlaveFallbehindMax",
            "doc": "lag from which a slave no longer counts",
            "unit": "bytes",
            "min": 0,
        },
    )
    in_sync_replicas: int = field(
        default=2,
        metadata={
            "key": "inSyncReplicas",
            "doc": "copies that a SYNC_MASTER waits for, its own included (key of 5.x; 4.9.8: 2)",
            "min": 1,
        },
    )
