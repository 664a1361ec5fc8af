"""broker.admin.admin_mode_processor: what a 5.3.3 broker with its default settings answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.admin.admin_mode_processor import AdminModeProcessor
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from tests.broker.broker_fakes import FakeConnection, request_of

GOLDEN = Path(__file__).parents[2] / "golden" / "default-modes-5.3.3.json"
EXCHANGES = json.loads(GOLDEN.read_text())


def ask(code: int, body: bytes = b"", **fields: str) -> RemotingCommand:
    request = request_of(code, body, **fields)
    try:
        answer = AdminModeProcessor().process_request(FakeConnection(), request)
    except RequestError as error:
        return request.response(error.code, error.remark)
    assert answer is not None
    return answer


@pytest.mark.parametrize("role", ["master", "slave"])
def test_every_answer_is_javas(role: str) -> None:
    own = [row for row in EXCHANGES[role] if row["request"] in AdminModeProcessor().table]
    assert len(own) == 15
    for row in own:
        if row["fields"] == {"masterEpoch": "x"}:
            continue  # Refused here: no number.
        answer = ask(row["request"], row["sent"].encode(), **row["fields"])
        told: dict[str, Any] = {"code": answer.code, "body": answer.body.decode()}
        assert told == {key: row[key] for key in told}, row
        if "Exception" not in (row["remark"] or ""):
            assert (answer.remark, answer.ext_fields) == (row["remark"], row["ext"]), row


def test_words_for_what_cannot_be_read() -> None:
    assert "Unknown config type: bogus" in str(ask(355, configType="topics;bogus").remark)
    assert "configType" in str(ask(355).remark)
    assert "masterEpoch" in str(ask(1008, masterEpoch="x").remark)
    assert ask(1008, b"{").code == 1
