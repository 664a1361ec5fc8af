"""Headers of the requests to a broker container of 5.x: 902, 903.

Pure data, any thread.
"""

from __future__ import annotations

from dataclasses import dataclass

from remoting.command_custom_header import CommandCustomHeader, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class AddBrokerRequestHeader(CommandCustomHeader):
    """ADD_BROKER (902): the settings file, as the container's host names it."""

    config_path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveBrokerRequestHeader(CommandCustomHeader):
    """REMOVE_BROKER (903)."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Int64
