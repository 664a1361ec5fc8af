"""What our member says to a controller is what Java's says, and it hears what Java's is told."""

from __future__ import annotations

import pytest

from broker.failover.controller_messages import (
    answer_of,
    ask_command,
    find_leader_command,
    heartbeat_command,
    role_notice_of,
)
from broker.failover.identity import Identity, decode_identity, encode_identity
from broker.failover.messages import Answered, Ask, GroupView, RoleNotified, SendHeartbeat
from broker.failover.settings import MemberSettings
from remoting.body.sync_state_set import SyncStateSet
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tests.remoting.golden_controller import golden_command

SETTINGS = MemberSettings("CtlCluster", "cb", "127.0.0.1:24410")
NEXT_ID, APPLY = RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, RequestCode.CONTROLLER_APPLY_BROKER_ID
REGISTER, ELECT = RequestCode.CONTROLLER_REGISTER_BROKER, RequestCode.CONTROLLER_ELECT_MASTER
ALTER = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
REPLICA_INFO = RequestCode.CONTROLLER_GET_REPLICA_INFO
CHECK_CODE = "127.0.0.1:24410;1795391110917"
BROKER_1, BROKER_2 = "127.0.0.1:24410", "127.0.0.1:24420"


def same_request(ours: RemotingCommand, javas: RemotingCommand) -> None:
    assert (ours.code, ours.ext_fields, ours.body) == (javas.code, javas.ext_fields, javas.body)
    assert (ours.flag, ours.has_ext_fields) == (javas.flag, javas.has_ext_fields)


@pytest.mark.parametrize(
    ("kind", "number", "ask"),
    [
        ("1012 req", "01", Ask(1, NEXT_ID)),
        ("1013 req", "01", Ask(1, APPLY, 1, CHECK_CODE)),
        ("1003 req", "01", Ask(1, REGISTER, 1, CHECK_CODE)),
        ("1002 req", "01", Ask(1, ELECT, 1, CHECK_CODE)),
        ("1004 req", "01", Ask(1, REPLICA_INFO, 1)),
        (
            "1001 req",
            "01",
            Ask(
                1,
                ALTER,
                1,
                master_epoch=1,
                sync_state_set=frozenset((2, 1)),
                sync_state_set_epoch=1,
            ),
        ),
    ],
)
def test_requests_are_those_of_a_java_broker(kind: str, number: str, ask: Ask) -> None:
    javas = golden_command(kind, number)
    now_ms = int(javas.ext_fields.get("invokeTime", "0"))
    same_request(ask_command(ask, SETTINGS, now_ms), javas)


def test_the_question_for_the_leader() -> None:
    same_request(find_leader_command(), golden_command("1005 req", "01"))


@pytest.mark.parametrize(("number", "epoch"), [("01", -1), ("04", 1)])
def test_heartbeats(number: str, epoch: int) -> None:
    beat = SendHeartbeat(1, epoch, 0, 0)
    same_request(heartbeat_command(beat, SETTINGS), golden_command("904 req", number))


@pytest.mark.parametrize(
    ("code", "kind", "number", "answer"),
    [
        (NEXT_ID, "1012 resp", "02", Answered(5, ResponseCode.SUCCESS, next_broker_id=2)),
        (APPLY, "1013 resp", "01", Answered(5, ResponseCode.SUCCESS)),
        # No master is alive: names only.
        (REGISTER, "1003 resp", "01", Answered(5, ResponseCode.SUCCESS)),
        (
            REGISTER,
            "1003 resp",
            "03",
            Answered(5, ResponseCode.SUCCESS, GroupView(2, BROKER_2, 2, frozenset((2,)), 3)),
        ),
        (
            ELECT,
            "1002 resp",
            "01",
            Answered(5, ResponseCode.SUCCESS, GroupView(1, BROKER_1, 1, frozenset((1,)), 1)),
        ),
        (
            REPLICA_INFO,
            "1004 resp",
            "03",
            Answered(5, ResponseCode.SUCCESS, GroupView(1, BROKER_1, 1, frozenset((1, 2)), 2)),
        ),
        (ALTER, "1001 resp", "03", Answered(5, ResponseCode.CONTROLLER_INVALID_MASTER)),
    ],
)
def test_answers_of_a_java_controller(
    code: RequestCode, kind: str, number: str, answer: Answered
) -> None:
    assert answer_of(Ask(5, code, 1), golden_command(kind, number), SETTINGS) == answer


def test_an_altered_set_confirms_the_master_that_asked() -> None:
    ask = Ask(5, ALTER, 1, master_epoch=3, sync_state_set=frozenset((1, 2)))
    found = answer_of(ask, golden_command("1001 resp", "05"), SETTINGS)
    assert found.view == GroupView(1, None, 3, frozenset((1, 2)), 6)


def response(code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> RemotingCommand:
    return RemotingCommand.request(1).response(code, None, fields, body)


@pytest.mark.parametrize(
    ("code", "answer", "expected"),
    [
        # From the probe of a 5.3.3 controller (golden/five-x/controller-probe of the references).
        pytest.param(
            REPLICA_INFO,
            response(0, {"masterEpoch": "0"}, b'{"syncStateSet":[],"syncStateSetEpoch":0}'),
            Answered(5, ResponseCode.SUCCESS, GroupView(None, None, 0, frozenset(), 0)),
            id="no master yet",
        ),
        pytest.param(
            ELECT,
            response(
                2011,
                {
                    "masterBrokerId": "2",
                    "masterAddress": "b2",
                    "syncStateSetEpoch": "1",
                    "masterEpoch": "1",
                },
                b'{"syncStateSet":[2]}',
            ),
            Answered(
                5,
                ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
                GroupView(2, "b2", 1, frozenset((2,)), 1),
            ),
            id="the old master stays",
        ),
        pytest.param(
            ELECT,
            response(2012, {}),
            Answered(5, ResponseCode.CONTROLLER_ELECT_MASTER_FAILED),
            id="nobody can be elected",
        ),
        pytest.param(
            REPLICA_INFO,
            response(2008, {}),
            Answered(5, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST),
            id="an unknown group",
        ),
        pytest.param(
            ALTER, response(1), Answered(5, ResponseCode.SYSTEM_ERROR), id="raft was too slow"
        ),
        pytest.param(
            ALTER, response(7_777), Answered(5, ResponseCode.SYSTEM_ERROR), id="an unknown code"
        ),
    ],
)
def test_other_answers(code: RequestCode, answer: RemotingCommand, expected: Answered) -> None:
    assert answer_of(Ask(5, code, 1), answer, SETTINGS) == expected


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (ALTER, response(0, {"newSyncStateSetEpoch": "2"}, b'{"syncStateSet":[1')),
        (ALTER, response(0, {"newSyncStateSetEpoch": "two"})),
        (NEXT_ID, response(0, {"nextBrokerId": "9" * 30})),
        (REPLICA_INFO, response(0, {"masterEpoch": "1"}, b'{"syncStateSet":["x"]}')),
        (ELECT, response(0, {"masterEpoch": "1"}, b"[]")),
        (NEXT_ID, response(0, {"nextBrokerId": "0"})),
        (NEXT_ID, response(0)),
    ],
)
def test_what_cannot_be_read_is_no_answer(code: RequestCode, answer: RemotingCommand) -> None:
    with pytest.raises(RequestError):
        answer_of(Ask(5, code, 1), answer, SETTINGS)


@pytest.mark.parametrize(
    ("code", "fields", "members", "named"),
    [
        # An empty set would have SEND_OK wait for nobody.
        (ALTER, {"newSyncStateSetEpoch": "2"}, [], "master 1 outside its SyncStateSet \\[\\]"),
        (ALTER, {"newSyncStateSetEpoch": "2"}, [2, 3], "master 1 outside"),
        (ALTER, {"newSyncStateSetEpoch": "2"}, [1, 0], "broker ids \\[0, 1\\]"),
        (REPLICA_INFO, {"masterBrokerId": "2", "masterEpoch": "1"}, [1], "master 2 outside"),
        (REPLICA_INFO, {"masterBrokerId": "1", "masterEpoch": "-1"}, [1], "epochs -1"),
        (REPLICA_INFO, {"masterEpoch": "1"}, [-4], "broker ids \\[-4\\]"),
        (REGISTER, {"masterBrokerId": "1", "masterEpoch": "3"}, [], "master 1 outside"),
        (REPLICA_INFO, {"masterEpoch": "1"}, [*range(1, 1_002)], "1001 members"),
        (REPLICA_INFO, {"masterEpoch": "1"}, [10**18], "broker ids"),
        (
            REPLICA_INFO,
            {"masterBrokerId": "1", "masterEpoch": "1", "masterAddress": "b:1\n2026 ERROR"},
            [1],
            "master's address 'b:1.n2026",
        ),
    ],
)
def test_a_group_as_no_controller_describes_it(
    code: RequestCode, fields: dict[str, str], members: list[int], named: str
) -> None:
    body = SyncStateSet(sync_state_set=members, sync_state_set_epoch=1).to_json_bytes()
    with pytest.raises(RequestError, match=named):
        answer_of(Ask(5, code, 1), response(0, fields, body), SETTINGS)


@pytest.mark.parametrize("code", [NEXT_ID, APPLY, REGISTER])
@pytest.mark.parametrize("other", [{"brokerName": "cc"}, {"clusterName": "Other"}])
def test_the_answer_for_another_group_counts_for_nothing(
    code: RequestCode, other: dict[str, str]
) -> None:
    ours = {"clusterName": "CtlCluster", "brokerName": "cb", "nextBrokerId": "2"}
    answer_of(Ask(5, code, 1), response(0, ours), SETTINGS)
    with pytest.raises(RequestError, match="not of cb in CtlCluster"):
        answer_of(Ask(5, code, 1), response(0, ours | other), SETTINGS)


def test_an_id_that_its_file_could_not_hold_is_not_taken() -> None:
    """It was written down, and the next start found "not an identity"."""
    longest = 10**18 - 1
    taken = answer_of(Ask(5, NEXT_ID), response(0, {"nextBrokerId": str(longest)}), SETTINGS)
    assert taken.next_broker_id == longest
    kept = encode_identity(Identity("CtlCluster", "cb", longest))
    assert decode_identity(kept, "CtlCluster", "cb").broker_id == longest
    with pytest.raises(RequestError, match="nextBrokerId is 10"):
        answer_of(Ask(5, NEXT_ID), response(0, {"nextBrokerId": str(longest + 1)}), SETTINGS)


def test_a_huge_answer_is_not_even_read() -> None:
    """A body may have 16 MB, and is read on the thread that sends heartbeats."""
    body = b'{"syncStateSet":[' + b"1," * (300 << 10) + b'1],"syncStateSetEpoch":1}'
    with pytest.raises(RequestError, match=f"{len(body)} bytes"):
        answer_of(Ask(5, REPLICA_INFO), response(0, {"masterEpoch": "1"}, body), SETTINGS)
    with pytest.raises(RequestError, match=f"{len(body)} bytes"):
        role_notice_of({"masterEpoch": "1"}, body)


def test_what_is_wrong_with_a_set_is_said_in_one_short_line() -> None:
    body = SyncStateSet(sync_state_set=[*range(10, 1_000)]).to_json_bytes()
    fields = {"masterBrokerId": "1", "masterEpoch": "1"}
    with pytest.raises(RequestError) as caught:
        answer_of(Ask(5, REPLICA_INFO), response(0, fields, body), SETTINGS)
    assert "master 1 outside" in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_member_asks_nothing_else() -> None:
    with pytest.raises(ValueError, match="CLEAN_BROKER_DATA"):
        ask_command(Ask(1, RequestCode.CLEAN_BROKER_DATA), SETTINGS, 0)


def test_a_notice_of_another_master() -> None:
    notice = golden_command("1008 req", "01")
    view = GroupView(2, BROKER_2, 2, frozenset((2,)), 3)
    assert role_notice_of(notice.ext_fields, notice.body) == RoleNotified(view)
    assert role_notice_of({"masterBrokerId": "2"}, b"") is None
    with pytest.raises(RequestError):
        role_notice_of({"masterEpoch": str(2**31)}, b"")
