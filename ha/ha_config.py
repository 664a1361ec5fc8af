"""HaConfig: the settings of replication, with RocketMQ's names and defaults.

Read by the `ha` process; filled by `conf.config_loader` at its start, frozen afterwards. In
RocketMQ these keys are part of MessageStoreConfig.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from conf.config_fields import setting


class HaAckLevel(enum.StrEnum):
    """What a slave has done with bytes before it acknowledges them."""

    received = "received"
    """They are in the page cache: RocketMQ's meaning."""
    validated = "validated"
    """They are whole records whose CRC is right."""
    flushed = "flushed"
    """They are validated and on disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HaConfig:
    """Keys of replication; a key that the store also declares is set in both."""

    # fmt: off
    ha_listen_port: int = setting(10912,
        "port for slaves; unset: listenPort + 1; 0: any free port", ge=0, le=65535)
    ha_master_address: str | None = setting(None,
        "ip:port of the master's HA port; unset: learned from the name server", important=True)
    ha_send_heartbeat_interval: int = setting(5000,
        "send a heartbeat after this much silence", unit="ms", ge=1)
    ha_housekeeping_interval: int = setting(20000,
        "close a connection after this much silence", unit="ms", ge=1)
    ha_reconnect_interval: int = setting(5000,
        "a slave's pause after a failed connection", unit="ms", ge=10)
    ha_transfer_batch_size: int = setting(1048576,
        "most log bytes of one frame, at most 4 MiB - 12", unit="bytes", ge=1)
    ha_flow_control: int = setting(0,
        "limit for all slaves together; 0: no limit", unit="bytes/s", ge=0)
    ha_ack_level: HaAckLevel = setting(HaAckLevel.received,
        "what a slave has done with bytes that it acknowledges")
    ha_shared_secret_file: str | None = setting(None,
        "file with the secret of the group, by which HA peers prove themselves")
    ha_trusted_addresses: str | None = setting(None,
        "networks whose peers need no proof, Java slaves for example; unset: this machine where "
        "there is neither a secret nor TLS, else nobody")
    ha_allow_any_peer: bool = setting(False,
        "send the log to anyone who connects, and follow anyone, as RocketMQ does")
    ha_max_connections: int = setting(32, "most slaves served at once", ge=1)
    ha_replica_remember_hours: int = setting(24,
        "how long HA status and metrics keep a slave that left", unit="h", ge=0, le=8760)
    ha_truncate_diverged: bool = setting(False,
        "a slave with records that its master lacks truncates its log to the last common record "
        "(what it removes is kept in a backup); unset: it refuses to replicate")
    ha_promote_unclean: bool = setting(False,
        "let a slave that is known to lack messages become a master")
    ha_tls_enable: bool = setting(False,
        "TLS with certificates on both sides of the HA port; excludes Java peers")
    ha_tls_certificate: str | None = setting(None, "PEM file: this broker's certificate chain")
    ha_tls_private_key: str | None = setting(None, "PEM file: the private key of haTlsCertificate")
    ha_tls_trusted_certificates: str | None = setting(None,
        "PEM file: authorities of the peers' certificates")
    ha_slave_fallbehind_max: int = setting(268435456,
        "lag from which a slave no longer counts as in sync", unit="bytes", ge=0)
    in_sync_replicas: int = setting(2,
        "copies for which SYNC_MASTER waits, including its own", ge=1)
    # fmt: on
