"""Tools from outside: a test that needs one is skipped without it, and fails when CI=true."""

from __future__ import annotations

import os
import shutil

import pytest


def _tool(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        reason = f"needs {name} on the PATH (Debian's package {package})"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="session")
def promtool() -> str:
    """Path of promtool."""
    return _tool("promtool", "prometheus")


@pytest.fixture(scope="session")
def prometheus() -> str:
    """Path of the server."""
    return _tool("prometheus", "prometheus")


@pytest.fixture(scope="session")
def analyze() -> str:
    """Path of systemd-analyze."""
    return _tool("systemd-analyze", "systemd")
