"""HaConfig: the settings of replication, with the original's names and defaults.

Read by the `ha` process; filled by `conf.config_loader` at its start, frozen afterwards. In the
original these keys are part of MessageStoreConfig.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class HaAckLevel(enum.StrEnum):
    """What a slave has done with bytes before it acknowledges them."""

    received = "received"
    """They are in the page cache: the original's meaning."""
    validated = "validated"
    """They are whole records whose CRC is right."""
    flushed = "flushed"
    """They are validated and on disk."""


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
    ha_reconnect_interval: int = field(
        default=5000,
        metadata={
            "key": "haReconnectInterval",
            "doc": "a slave's rest after a link that failed (a constant of the original)",
            "unit": "ms",
            "min": 10,
        },
    )
    ha_transfer_batch_size: int = field(
        default=1048576,
        metadata={
            "key": "haTransferBatchSize",
            "doc": "most log bytes of one frame (the original: 32768, never over 4 MiB - 12)",
            "unit": "bytes",
            "min": 1,
        },
    )
    ha_flow_control: int = field(
        default=0,
        metadata={
            "key": "haFlowControl",
            "doc": "most log bytes that leave for all slaves together, 0 = no limit",
            "unit": "bytes/s",
            "min": 0,
        },
    )
    ha_ack_level: HaAckLevel = field(
        default=HaAckLevel.received,
        metadata={
            "key": "haAckLevel",
            "doc": "what a slave does before it acknowledges: received, validated or flushed",
        },
    )
    ha_trusted_addresses: str = field(
        default="127.0.0.0/8",
        metadata={
            "key": "haTrustedAddresses",
            "doc": "networks whose peers get the log, beside the registered brokers of the group",
        },
    )
    ha_allow_any_peer: bool = field(
        default=False,
        metadata={
            "key": "haAllowAnyPeer",
            "doc": "give the log to whoever connects, as the original does",
        },
    )
    ha_max_connections: int = field(
        default=32,
        metadata={"key": "haMaxConnections", "doc": "most slaves served at once", "min": 1},
    )
    ha_replica_remember_hours: int = field(
        default=24,
        metadata={
            "key": "haReplicaRememberHours",
            "doc": "how long a slave that left stays in HA status and metrics, its lag growing",
            "unit": "h",
            "min": 0,
            "max": 8760,
        },
    )
    ha_truncate_diverged: bool = field(
        default=False,
        metadata={
            "key": "haTruncateDiverged",
            "doc": "a slave that holds what its master lacks goes back to the last common record "
            "(what is cut off is kept in a backup); unset it refuses the link",
        },
    )
    ha_promote_unclean: bool = field(
        default=False,
        metadata={
            "key": "haPromoteUnclean",
            "doc": "let a slave that is known to lack messages become a master",
        },
    )
    ha_tls_enable: bool = field(
        default=False,
        metadata={
            "key": "haTlsEnable",
            "doc": "TLS with certificates on both sides of the HA port; Java peers cannot join",
        },
    )
    ha_tls_certificate: str | None = field(
        default=None,
        metadata={"key": "haTlsCertificate", "doc": "PEM file: this broker's certificate chain"},
    )
    ha_tls_private_key: str | None = field(
        default=None,
        metadata={"key": "haTlsPrivateKey", "doc": "PEM file: the key of haTlsCertificate"},
    )
    ha_tls_trusted_certificates: str | None = field(
        default=None,
        metadata={
            "key": "haTlsTrustedCertificates",
            "doc": "PEM file: authorities whose certificates a peer must show",
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
