"""Request 318 with every setting that it must not change, in every disguise: refused, nothing is
written, and the audit log has one line."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import pytest

from conf.config_fields import field_specs
from namesrv.config_manager import CHANGEABLE_KEYS, ConfigManager
from namesrv.namesrv_config import NamesrvConfig
from remoting.errors import RequestError
from tests.support.hostile_settings import hostile_texts

pytestmark = pytest.mark.fault(43)
FILES = {
    "namesrv.properties": "# ours\nlistenPort = 9999\n\norderMessageEnable = false\n! end\n",
    "namesrv.yaml": "# ours\nlistenPort: 9999\norderMessageEnable: false\n",
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harmless", ["orderMessageEnable=true", "scanNotActiveBrokerInterval=5"])
def test_what_a_request_must_not_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, harmless: str
) -> None:
    path = tmp_path / name
    path.write_text(FILES[name])
    manager = ConfigManager(NamesrvConfig(config_store_path=str(path)))
    before = manager.config
    protected = [spec.key for spec in field_specs(NamesrvConfig) if spec.key not in CHANGEABLE_KEYS]
    taken = []
    for text in hostile_texts(protected, harmless):
        caplog.clear()
        with caplog.at_level(logging.INFO), contextlib.suppress(RequestError):
            taken.append((text, manager.update(text, "10.0.0.9:1")))
        lines = [each for each in caplog.records if each.name == "namesrv.audit"]
        assert len(lines) == 1, text
        assert "refused: " in lines[0].getMessage()
    assert taken == []
    assert manager.config is before
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {name: FILES[name]}
