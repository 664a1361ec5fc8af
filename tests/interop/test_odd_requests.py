"""The golden of what Java 5.3.3 answers to odd requests is what it answers.

`ODD_REQUESTS_GOLDEN=write` writes it anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.interop import harness
from tests.support import odd_requests

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(240)]


def test_java_answers_as_its_golden(tmp_path: Path) -> None:
    broker = harness.broker(
        "java-5.3", tmp_path, None, name=odd_requests.NAME, conf=odd_requests.SETTINGS
    ).start()
    try:
        with broker.client() as client:
            answers = odd_requests.ask_all(client)
    finally:
        broker.kill()
    if os.environ.get("ODD_REQUESTS_GOLDEN") == "write":
        lines = [f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items()]
        odd_requests.GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    assert answers == odd_requests.golden()
