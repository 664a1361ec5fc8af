"""What controller mode makes of other settings; a whole start is in test_broker_startup.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.settings.controller_mode_config import ControllerModeConfig
from broker.settings.controller_mode_rules import forced_settings, is_safe, promise_of


@pytest.mark.parametrize(
    ("data", "broker_id"),
    [
        (b"c#b#17", "17"),
        (b"c#b#17\n", "1"),
        (b"", "1"),
        (b"c#b#0", "1"),
        (b"c#b#-3", "1"),
        (b"c#b#" + b"9" * 40, "1"),
        (b"\xff\xfe", "1"),
    ],
)
def test_an_identity_that_cannot_be_used_is_the_member_s_to_report(
    tmp_path: Path, data: bytes, broker_id: str
) -> None:
    (tmp_path / "brokerIdentity").write_bytes(data)
    assert (
        forced_settings(ControllerModeConfig(), tmp_path, sync_flush=False)["brokerId"] == broker_id
    )


def test_a_first_start_has_no_identity(tmp_path: Path) -> None:
    forced = forced_settings(ControllerModeConfig(), tmp_path, sync_flush=False)
    assert (forced["brokerId"], forced["brokerRole"]) == ("1", "SLAVE")


def test_the_safe_mode() -> None:
    safe = ControllerModeConfig(all_ack_in_sync_state_set=True, min_in_sync_replicas=3)
    assert is_safe(safe)
    assert "3 at least" in promise_of(safe, in_sync_replicas=1)
    for weak in (
        ControllerModeConfig(),
        ControllerModeConfig(all_ack_in_sync_state_set=True),
        ControllerModeConfig(min_in_sync_replicas=2),
    ):
        assert not is_safe(weak)
