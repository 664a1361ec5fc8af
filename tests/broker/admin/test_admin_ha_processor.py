"""broker.admin.admin_ha_processor: 905 to 908 and announcements, with process ha played."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.admin.admin_ha_processor import AdminHAProcessor, HaIdentity
from broker.slave.promotion import PromotionOutlook
from broker.slave.sync_kind import SyncKind
from broker.slave.sync_status import SyncStatus
from ipc.command_channel import CommandError
from remoting.body.ha_runtime_info import HARuntimeInfo, SlaveSyncInfo
from remoting.command_custom_header import encode_header
from remoting.errors import RequestError
from remoting.headers.ha import AnnounceHALinkRequestHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tests.broker.broker_fakes import FakeConnection, request_of

GOLDEN = Path(__file__).parents[2] / "golden" / "default-modes-5.3.3.json"
MASTER_STATUS: dict[str, Any] = {
    "master": True,
    "masterCommitLogMaxOffset": 5000,
    "inSyncSlaveNums": 0,
    "haConnectionInfo": [
        {
            "addr": "10.0.0.1:4711",
            "slaveAckOffset": 4000,
            "diff": 1000,
            "inSync": False,
            "transferredByteInSecond": 7,
            "transferFromWhere": 4500,
            "id": "b:1",
            "state": "catching_up",
            "lagBytes": 1000,
            "lagSeconds": 2.25,
            "lagSecondsExact": True,
            "disconnectedSince": None,
            "lastError": None,
        }
    ],
    "haClientRuntimeInfo": {},
    "refusals": {"silent": 3},
    "timestamp": 1_700_000_000_000,
}
SLAVE_STATUS: dict[str, Any] = {
    "master": False,
    "haConnectionInfo": [],
    "haClientRuntimeInfo": {"masterAddr": None, "maxOffset": 4000, "state": "transfer"},
    "refusals": {},
}
SYNC = {
    SyncKind.TOPICS: SyncStatus(
        last_success_ms=5, failures=1, last_error="timeout", last_error_ms=4
    ),
    SyncKind.CONSUMER_OFFSETS: SyncStatus(),
    SyncKind.DELAY_OFFSETS: SyncStatus(last_success_ms=6),
    SyncKind.SUBSCRIPTION_GROUPS: SyncStatus(last_success_ms=7),
}


class Flushed:
    """masterFlushedOffset."""

    value = 3

    def reset(self, offset: int, _requester: str) -> None:
        self.value = offset


class World:
    """One broker; `calls` is what process ha was asked, `told` which masters were given."""

    def __init__(self, broker_id: int = 0) -> None:
        self.broker_id = broker_id
        self.status: dict[str, Any] | CommandError = MASTER_STATUS
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.told: list[tuple[str, str | None]] = []
        self.changes: list[str] = []
        self.flushed = Flushed()
        self.processor = AdminHAProcessor(
            self.identity,
            ha=self,
            slave_sync=self.slave_sync,
            promotion=lambda: PromotionOutlook("lacks 3 bytes", "seen at noon"),
            update_master=lambda news: self.told.append((news.ha_address, news.address)),
            min_broker_id_changed=self.changes.append,
            flushed=self.flushed,
        )

    def identity(self) -> HaIdentity:
        return HaIdentity(
            broker_name="b",
            broker_id=self.broker_id,
            broker_address="10.0.0.9:10911",
            ha_address="10.0.0.9:10912",
            initial_max_offset=777,
        )

    def slave_sync(self) -> Mapping[SyncKind, SyncStatus]:
        return SYNC

    def call(self, command: str, timeout_ms: int, **arguments: Any) -> dict[str, Any]:
        assert timeout_ms > 0
        self.calls.append((command, arguments))
        if isinstance(self.status, CommandError):
            raise self.status
        return self.status

    def ask(self, request: RemotingCommand, remote: str = "10.0.0.1:50111") -> RemotingCommand:
        try:
            answer = self.processor.process_request(FakeConnection(remote), request)
        except RequestError as error:
            return request.response(error.code, error.remark)
        assert answer is not None
        return answer

    def announce(
        self, name: str = "b", broker_id: int = 1, remote: str = "10.0.0.1:50111"
    ) -> RemotingCommand:
        header = AnnounceHALinkRequestHeader(
            link="10.0.0.1:4711", broker_name=name, broker_id=broker_id
        )
        return self.ask(
            RemotingCommand.request(RequestCode.ANNOUNCE_HA_LINK, encode_header(header)), remote
        )


def test_status_of_a_master() -> None:
    world = World()
    answer = world.ask(request_of(907))
    assert answer.code == ResponseCode.SUCCESS
    info = HARuntimeInfo.from_json_bytes(answer.body)
    assert info == HARuntimeInfo.from_json(MASTER_STATUS)
    assert (info.master_commit_log_max_offset, info.refusals) == (5000, {"silent": 3})
    assert info.ha_connection_info[0].lag_seconds == 2.25
    assert (info.slave_sync, info.promotion_objection) == (None, None)
    assert world.calls == [("ha_status", {})]


def test_status_of_a_slave_tells_of_its_metadata() -> None:
    world = World(broker_id=1)
    world.status = SLAVE_STATUS
    info = HARuntimeInfo.from_json_bytes(world.ask(request_of(907)).body)
    assert not info.master
    assert info.ha_client_runtime_info.max_offset == 4000
    assert info.ha_client_runtime_info.master_flush_offset == 3
    assert (info.promotion_objection, info.promotion_basis) == ("lacks 3 bytes", "seen at noon")
    assert info.slave_sync == {
        "topics": SlaveSyncInfo(
            last_success_timestamp=5, failures=1, last_error="timeout", last_error_timestamp=4
        ),
        "consumerOffsets": SlaveSyncInfo(),
        "delayOffsets": SlaveSyncInfo(last_success_timestamp=6),
        "subscriptionGroups": SlaveSyncInfo(last_success_timestamp=7),
    }


@pytest.mark.parametrize("status", [CommandError("ha_status: no response from ha"), {"master": []}])
def test_process_ha_does_not_answer(status: dict[str, Any] | CommandError) -> None:
    world = World()
    world.status = status
    answer = world.ask(request_of(907))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "process ha" in answer.remark


def test_a_master_gives_its_addresses() -> None:
    answer = World().ask(request_of(906))
    assert (answer.code, answer.ext_fields) == (
        ResponseCode.SUCCESS,
        {
            "masterHaAddress": "10.0.0.9:10912",
            "masterFlushOffset": "777",
            "masterAddress": "10.0.0.9:10911",
        },
    )


def test_a_slave_that_is_asked_has_nothing_to_say() -> None:
    answer = World(broker_id=1).ask(request_of(906))
    assert (answer.code, answer.ext_fields) == (ResponseCode.SUCCESS, {})


def test_a_slave_is_told_of_its_master() -> None:
    world = World(broker_id=1)
    answer = world.ask(
        request_of(
            906,
            masterHaAddress="10.0.0.5:10912",
            masterFlushOffset="9",
            masterAddress="10.0.0.5:10911",
        )
    )
    assert answer.code == ResponseCode.SUCCESS
    assert world.ask(request_of(906, masterHaAddress="10.0.0.6:10912")).code == 0
    assert world.told == [("10.0.0.5:10912", "10.0.0.5:10911"), ("10.0.0.6:10912", None)]


def test_a_master_takes_no_master() -> None:
    world = World()
    assert world.ask(request_of(906, masterHaAddress="10.0.0.5:10912")).code == 0
    assert world.told == []


def test_an_announcement_goes_to_process_ha() -> None:
    world = World()
    world.status = {"known": True}
    assert world.announce().code == ResponseCode.SUCCESS
    arguments = {"link": "10.0.0.1:4711", "broker_name": "b", "broker_id": 1}
    assert world.calls == [("announce_ha_link", arguments)]


@pytest.mark.parametrize(
    ("own_id", "name", "broker_id"), [(0, "other", 1), (0, "b", 0), (0, "b", -3), (2, "b", 2)]
)
def test_who_is_no_replica_of_this_broker(own_id: int, name: str, broker_id: int) -> None:
    world = World(own_id)
    answer = world.announce(name, broker_id)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark is not None
    assert f"{broker_id}" in answer.remark
    assert world.calls == []


@pytest.mark.parametrize("remote", ["10.0.0.2:4711", "10.0.0.11:4711", "127.0.0.1:4711", "?"])
def test_nobody_names_the_links_of_another_host(remote: str) -> None:
    world = World()
    answer = world.announce(remote=remote)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark is not None
    for words in ("10.0.0.1:4711", remote, "same network"):
        assert words in answer.remark
    assert world.calls == []


@pytest.mark.parametrize(("broker_id", "role"), [(0, "master"), (1, "slave")])
@pytest.mark.parametrize("code", [905, 908])
def test_the_answers_to_905_and_908_are_javas(code: int, broker_id: int, role: str) -> None:
    golden = json.loads(GOLDEN.read_text())[role]
    rows = [row for row in golden if row["request"] == code]
    assert len(rows) == 3
    for row in rows:
        answer = World(broker_id).ask(request_of(code, **row["fields"]))
        if "x" in row["fields"].values():
            assert answer.code == 1  # Refused here: no number.
        elif "Exception" in (row["remark"] or ""):
            assert (answer.code, "minBrokerId" in str(answer.remark)) == (row["code"], True)
        else:
            assert (answer.code, answer.remark) == (row["code"], row["remark"])


def test_a_notice_only_makes_us_ask() -> None:
    world = World(broker_id=1)
    fields = {"minBrokerId": 1, "haBrokerAddr": "6.6.6.6:10912", "minBrokerAddr": "6.6.6.6:10911"}
    assert world.ask(request_of(905, **fields)).code == ResponseCode.SUCCESS
    assert world.changes == ["10.0.0.1:50111"]
    assert world.told == []


def test_an_operator_sets_the_flushed_offset_of_a_slave() -> None:
    slave, master = World(broker_id=1), World()
    for world in (slave, master):
        assert world.ask(request_of(908, masterFlushOffset=77)).code == ResponseCode.SUCCESS
    assert (slave.flushed.value, master.flushed.value) == (77, 3)
    refused = slave.ask(request_of(908, masterFlushOffset=-1))
    assert (refused.code, "-1" in str(refused.remark)) == (ResponseCode.SYSTEM_ERROR, True)
    assert slave.flushed.value == 77
