"""Request 25 with every setting that it must not change, in every disguise: refused, nothing is
written, and the audit log has one line."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from pathlib import Path

import pytest

from broker.settings.changeable_keys import CHANGEABLE
from remoting.errors import RequestError
from tests.broker.settings.test_config_update import FILE, World
from tests.support.hostile_settings import hostile_texts

pytestmark = pytest.mark.fault(43)
FILES = {
    "broker.conf": FILE,
    "broker.yaml": "# ours\nlistenPort: 10911\nbrokerPermission: 6 # both\n",
}


def digest(root: Path) -> dict[str, str]:
    """Every file below `root` by its content."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize("harmless", ["brokerPermission=4", "deleteWhen=04"])
@pytest.mark.parametrize("name", FILES)
def test_what_a_request_must_not_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, harmless: str
) -> None:
    world = World(tmp_path, name=name)
    world.path.write_text(FILES[name])
    before = digest(tmp_path), dict(world.updates.all_configs())
    protected = [key for key in before[1] if key not in CHANGEABLE]
    taken = []
    for text in hostile_texts(protected, harmless):
        caplog.clear()
        with caplog.at_level(logging.INFO), contextlib.suppress(RequestError):
            taken.append((text, world.updates.update(text, "10.0.0.9:1")))
        lines = [each for each in caplog.records if each.name == "broker.audit"]
        assert len(lines) == 1, text
        assert "refused: " in lines[0].getMessage()
    assert taken == []
    assert (digest(tmp_path), dict(world.updates.all_configs())) == before
    assert (world.user.used, world.changed.read()) == ([], {})
