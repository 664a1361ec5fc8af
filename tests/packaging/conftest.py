"""Prometheus' tools: a test that needs one is skipped without it, and fails when CI=true."""

from __future__ import annotations

import os
import shutil

import pytest


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        reason = f"needs {name} on the PATH (Debian's package prometheus)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="session")
def promtool() -> str:
    """Path of promtool."""
    return _tool("promtool")


@pytest.fixture(scope="session")
def prometheus() -> str:
    """Path of the server."""
    return _tool("prometheus")
