"""mqchaos in this process, for what it says before any broker is started."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.mqchaos import main

UsageError = Callable[[list[str]], str]


@pytest.fixture
def usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> UsageError:
    """Runs a command line that is wrong; what it says, on one line."""

    def run(arguments: list[str]) -> str:
        monkeypatch.setattr(sys, "argv", ["mqchaos", *arguments])
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        assert main() == 2
        return " ".join(capsys.readouterr().err.split())

    return run
