"""Headers of replication: 906, 908, and our own announcement of a link. Pure data, any thread."""

from __future__ import annotations

from dataclasses import dataclass

from remoting.command_custom_header import CommandCustomHeader, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeHAInfoRequestHeader(CommandCustomHeader):
    """EXCHANGE_BROKER_HA_INFO (906): with masterHaAddress it tells, without it asks."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeHAInfoResponseHeader(CommandCustomHeader):
    """Answer to 906: filled by a master that was asked."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetMasterFlushOffsetHeader(CommandCustomHeader):
    """RESET_MASTER_FLUSH_OFFSET (908)."""

    master_flush_offset: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnounceHALinkRequestHeader(CommandCustomHeader):
    """ANNOUNCE_HA_LINK (ours): the HA connection that comes from `link` ("ip:port") is that of
    the slave `broker_id` of the group `broker_name`."""

    link: str
    broker_name: str
    broker_id: Int64
