"""The settings that an embedded name server has from its broker."""

from __future__ import annotations

import pytest

from broker.processes.namesrv import server_config

GIVEN = {"listenPort": "10911", "embeddedNamesrvPort": "19876", "bindAddress": "127.0.0.1"}


@pytest.mark.parametrize(("idle", "used"), [("2", 120), ("120", 120), ("600", 600)])
def test_limits_of_the_broker(idle: str, used: int) -> None:
    """But for an idle time in which brokers need not register."""
    limits = {"serverMaxIncompleteFrameBytes": "33554432", "serverChannelMaxIdleTimeSeconds": idle}
    found = server_config(GIVEN | limits)
    assert found.server_max_incomplete_frame_bytes == 33_554_432
    assert found.server_channel_max_idle_time_seconds == used
    assert (found.listen_port, found.bind_address) == (19876, "127.0.0.1")
