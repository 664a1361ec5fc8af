"""What a master answers counts while it is this broker's master."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.out.broker_outer_api import BrokerAnswerError
from broker.slave.member_synchronize import CopiedTables
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode

MASTER = "10.0.0.1:10911"


class Client:
    """Answers each request; by then the master is `next_master`."""

    def __init__(self) -> None:
        self.tables: CopiedTables
        self.next_master: str | None = MASTER

    def invoke_sync(self, _address: str, _command: Any, _timeout_ms: int) -> RemotingCommand:
        with self.tables.lock:  # Not held while a broker is asked.
            self.tables.master = self.next_master
        return RemotingCommand(code=0, body=b"{}")


@pytest.fixture
def client() -> Client:
    found = Client()
    found.tables = CopiedTables(SimpleNamespace(client=found))  # type: ignore[arg-type]
    found.tables.master = MASTER
    return found


@pytest.mark.parametrize("address", [MASTER, "10.0.0.1:10909"])
def test_the_masters_answer_counts(client: Client, address: str) -> None:
    with client.tables.lock:
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        assert client.tables.get_table(address, code, 1_000) == b"{}"
        client.tables.get_timer_check_point(address, 1_000)


@pytest.mark.parametrize("next_master", [None, "10.0.0.2:10911"])
def test_the_answer_of_a_master_that_is_none_any_more_counts_for_nothing(
    client: Client, next_master: str | None
) -> None:
    """This broker leads by then, or follows another one: its tables are not the old master's."""
    client.next_master = next_master
    with client.tables.lock:
        with pytest.raises(BrokerAnswerError, match="not our master any more"):
            client.tables.get_table(MASTER, RequestCode.GET_ALL_TOPIC_CONFIG, 1_000)
        assert client.tables.lock.locked()
        with pytest.raises(BrokerAnswerError, match="not our master any more"):
            client.tables.get_timer_check_point(MASTER, 1_000)
        assert client.tables.lock.locked()
