"""broker.slave.message_request_mode_synchronize: a slave takes its master's table."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from broker.out.broker_outer_api import BrokerAnswerError
from broker.slave.message_request_mode_synchronize import MessageRequestModeSynchronize
from broker.subscription.message_request_mode_manager import MessageRequestModeManager
from remoting.errors import RemotingConnectError
from remoting.request_code import RequestCode

MASTER = "10.0.0.1:10911"
ROW = {"topic": "orders", "consumerGroup": "g", "mode": "POP", "popShareQueueNum": 3}
TABLE = {"messageRequestModeMap": {"orders": {"g": ROW}}}
NAME = "broker.slave.message_request_mode_synchronize"


class Api:
    """BrokerOuterAPI."""

    def __init__(self) -> None:
        self.answer: bytes | Exception | None = json.dumps(TABLE).encode()

    def get_table(self, broker: str, code: RequestCode, _timeout_ms: int) -> bytes | None:
        assert (broker, code) == (MASTER, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def loaded(path: Path) -> MessageRequestModeManager:
    manager = MessageRequestModeManager(path)
    manager.load()
    return manager


def mode_of(path: Path) -> object:
    """As another process finds it."""
    row = loaded(path).find("orders", "g")
    return None if row is None else (row.mode, row.pop_share_queue_num)


def test_the_table_is_the_masters_in_memory_and_on_disk(tmp_path: Path) -> None:
    path, api = tmp_path / "messageRequestMode.json", Api()
    modes = loaded(path)
    sync = MessageRequestModeSynchronize(api, modes)
    sync.sync(MASTER)
    assert modes.find("orders", "g") is not None
    assert mode_of(path) == ("POP", 3)
    api.answer = b'{"messageRequestModeMap":{}}'
    sync.sync(MASTER)
    assert modes.find("orders", "g") is None
    assert mode_of(path) is None


@pytest.mark.parametrize(
    "trouble",
    [RemotingConnectError(MASTER, "down"), BrokerAnswerError("no"), b"{}", b"[", None],
    ids=["down", "Java 4.9", "nothing", "no JSON", "no body"],
)
def test_a_table_that_was_not_read_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, trouble: bytes | Exception | None
) -> None:
    path, api = tmp_path / "messageRequestMode.json", Api()
    sync = MessageRequestModeSynchronize(api, loaded(path))
    sync.sync(MASTER)
    api.answer = trouble
    caplog.set_level(logging.INFO, NAME)
    for _ in range(2):
        sync.sync(MASTER)
    assert mode_of(path) == ("POP", 3)
    assert len([record for record in caplog.records if record.name == NAME]) == 1
