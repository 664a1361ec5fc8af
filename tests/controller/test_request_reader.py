"""What is read from requests: those of 5.3.3's brokers, and values at their limits."""

from __future__ import annotations

import json
import struct

import pytest

from controller.live_brokers import Heartbeat
from controller.request_reader import ASKING_CODES, broker_names_of, heartbeat_of, request_of
from controller.requests import AlterSyncStateSet, ElectMaster
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from tests.remoting.golden_controller import decoded, golden_rows

BEAT = {"clusterName": "C", "brokerName": "b", "brokerAddr": "10.1.1.1:7", "brokerId": "1"}


def test_what_java_brokers_send_is_read() -> None:
    """Each value is looked up in the text of the frame, without our decoder."""
    counts: dict[int, int] = {}
    for row in golden_rows():
        if not row.kind.endswith(" req"):
            continue
        header_size = struct.unpack(">I", row.frame[4:8])[0] & 0xFFFFFF
        header = json.loads(row.frame[8 : 8 + header_size])
        sent, code = header.get("extFields", {}), header["code"]
        command = decoded(row.frame)
        if code == 904:
            told = heartbeat_of(command, 5)
            assert (told.broker_name, told.address) == (sent["brokerName"], sent["brokerAddr"])
            assert (told.broker_id, told.channel) == (int(sent["brokerId"]), 5)
            assert told.timeout_ms == int(sent["heartbeatTimeoutMills"])
            report = (int(sent["epoch"]), int(sent["maxOffset"]), int(sent["electionPriority"]))
            assert told.report == report
        elif code == 1006:
            assert broker_names_of(command) == json.loads(row.frame[8 + header_size :])
        elif code in ASKING_CODES:
            request = request_of(command)
            assert request.broker_name == sent["brokerName"]
            match request:
                case AlterSyncStateSet():
                    body = json.loads(row.frame[8 + header_size :])
                    assert request.sync_state_set == frozenset(body["syncStateSet"])
                    assert request.sync_state_set_epoch == body["syncStateSetEpoch"]
                    assert request.master_epoch == int(sent["masterEpoch"])
                    assert request.master_broker_id == int(sent["masterBrokerId"])
                case ElectMaster():
                    assert request.broker_id == int(sent["brokerId"])
                    assert request.designate_elect is (sent["designateElect"] == "true")
        counts[code] = counts.get(code, 0) + 1
    assert {904, 1001, 1002, 1003, 1004, 1006, 1012, 1013} <= counts.keys()


def _beat(**fields: str) -> Heartbeat:
    return heartbeat_of(RemotingCommand.request(904, {**BEAT, **fields}), 5)


def test_a_heartbeat_that_says_little() -> None:
    """It counts for ten seconds, and its broker is elected last."""
    told = _beat()
    assert (told.timeout_ms, tuple(told.report)) == (10_000, (-1, -1, 2**31 - 1))


@pytest.mark.parametrize(
    ("timeout", "counts_ms"),
    [("1", 1), ("0", 10_000), ("-1", 10_000), ("600001", 600_000), (str(2**63 - 1), 600_000)],
)
def test_how_long_a_heartbeat_counts(timeout: str, counts_ms: int) -> None:
    """Nobody is alive for ever, whatever it says."""
    assert _beat(heartbeatTimeoutMills=timeout).timeout_ms == counts_ms


@pytest.mark.parametrize("port", ["", "0", "65536", "x", "-1", "+1", "1 ", "\u0661", "\u00b2"])
def test_a_port_is_a_number(port: str) -> None:
    with pytest.raises(RequestError, match="expected host:port"):
        _beat(brokerAddr=f"10.1.1.1:{port}")


@pytest.mark.parametrize("broker_id", ["0", "-1", "-9223372036854775808"])
def test_nobody_asks_in_the_controllers_name(broker_id: str) -> None:
    """-1 is the controller itself, whose vain try takes the master away."""
    fields = {"clusterName": "C", "brokerName": "b", "designateElect": "false", "invokeTime": "1"}
    with pytest.raises(RequestError, match="ids begin at 1"):
        request_of(RemotingCommand.request(1002, {**fields, "brokerId": broker_id}))


@pytest.mark.parametrize("ids", ["1;x", ";", " ; ;", "\u0661", "-1", "1,2", "1" * 20])
def test_ids_to_clean_are_numbers(ids: str) -> None:
    """One that is not read must not become "all of them"."""
    fields = {"brokerName": "b", "invokeTime": "1", "brokerControllerIdsToClean": ids}
    with pytest.raises(RequestError, match="brokerControllerIdsToClean"):
        request_of(RemotingCommand.request(1011, fields))
