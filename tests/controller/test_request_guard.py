"""Who may ask a controller what, over its rules and over a living controller."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controller.controller_config import ControllerConfig
from controller.request_guard import BROKER_CODES, OPERATOR_CODES, READING_CODES, RequestGuard
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from tests.controller.controller_peer import DEADLINE_S, Peer, running
from tests.namesrv.conftest import FakeConnection

STRANGER = "10.1.1.1:5000"
GROUP = {"clusterName": "C", "brokerName": "b"}


@pytest.fixture(scope="module")
def port_of_one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Of one controller without groups, for requests that change nothing."""
    with running(tmp_path_factory.mktemp("one")) as port:
        yield port


def guard(**settings: str) -> RequestGuard:
    return RequestGuard(ControllerConfig(**settings), lambda: 0, has_certificates=False)  # type: ignore[arg-type]


def refused(check: RequestGuard, code: int, remote: str = STRANGER, **fields: str) -> str | None:
    try:
        check.check(FakeConnection(remote_address=remote), RemotingCommand.request(code, fields))
    except RequestError as error:
        return f"{int(error.code)}: {error.remark}"
    return None


def test_what_only_shows_something_is_open() -> None:
    assert [code for code in READING_CODES if refused(guard(), code)] == []


def test_operators_requests_come_from_operators() -> None:
    for code in OPERATOR_CODES:
        assert "adminAllowedAddresses" in (refused(guard(), code) or "")
        assert refused(guard(), code, "127.0.0.1:1") is None
        assert refused(guard(admin_allowed_addresses="10.1.*.*"), code) is None


@pytest.mark.parametrize(
    ("code", "field"),
    [(904, "brokerAddr"), (1003, "brokerAddress"), (1013, "registerCheckCode")],
)
def test_a_broker_names_its_own_address(code: int, field: str) -> None:
    assert code in BROKER_CODES
    assert refused(guard(), code, **{field: "10.1.1.1:10911;7"}) is None
    for address in ("10.1.1.2:10911", "", "x", "10.1.1.1"):
        remark = refused(guard(), code, **{field: address})
        assert remark is not None
        assert remark.startswith("16: ")
        assert "registerAllowedAddresses" in remark
    assert refused(guard(register_allowed_addresses="10.1.1.1"), code, **{field: "x:1"}) is None


def test_with_certificates_peers_speak_for_others() -> None:
    """Every one has shown one; operators' requests are still theirs."""
    check = RequestGuard(ControllerConfig(), lambda: 0, has_certificates=True)
    assert refused(check, 1003, brokerAddress="10.1.1.2:10911") is None
    assert refused(check, 1011) is not None


def test_a_code_without_a_rule_is_denied() -> None:
    known = READING_CODES | OPERATOR_CODES | BROKER_CODES
    assert refused(guard(), RequestCode.SEND_MESSAGE) is not None
    with_rules = {
        code
        for code in RequestCode
        if refused(
            guard(),
            code,
            brokerAddr="10.1.1.1:1",
            brokerAddress="10.1.1.1:1",
            registerCheckCode="10.1.1.1:1;1",
        )
        is None
    }
    assert with_rules == known - OPERATOR_CODES


def test_nobody_speaks_for_a_living_broker_of_another_host(tmp_path: Path) -> None:
    """Loopback has many addresses; to the controller they are one host, so that the peers' origin
    is changed underneath."""
    import controller.controller_request_processor as module

    origins = {}

    def origin_of(connection: object) -> str:
        return origins[connection.remote_address]  # type: ignore[attr-defined]

    with pytest.MonkeyPatch.context() as patch, running(tmp_path) as port:
        patch.setattr(module, "origin_of", origin_of)
        with Peer(port) as own, Peer(port) as other:
            for peer, host in ((own, "own"), (other, "other")):
                name = peer._sock.getsockname()
                origins[f"{name[0]}:{name[1]}"] = host
            apply = {**GROUP, "registerCheckCode": "127.0.0.1:7;1"}
            register = {**GROUP, "brokerId": 1, "brokerAddress": "127.0.0.1:7", "invokeTime": 1}
            elect = {**GROUP, "brokerId": 1, "designateElect": "false", "invokeTime": 1}
            beat = {**GROUP, "brokerId": 1, "brokerAddr": "127.0.0.1:7"}
            alter = {"brokerName": "b", "masterBrokerId": 1, "masterEpoch": 1, "invokeTime": 1}
            body = b'{"syncStateSet":[1],"syncStateSetEpoch":1}'
            assert own.call(1013, {**apply, "appliedBrokerId": 1}).code == 0
            assert own.call(1002, elect).code == 16, "it has not spoken for that id yet"
            assert own.call(1003, register).code == 0
            assert own.call(904, beat).code == 0
            assert own.call(1002, elect).code == 0
            for code, fields in ((1003, register), (904, beat), (1002, elect)):
                assert other.call(code, fields).code == 16, code
            assert other.call(1001, alter, body).code == 16
            assert own.call(1001, alter, body).code == 0
            told = other.call(1004, {"brokerName": "b"}).ext_fields
            assert (told["masterEpoch"], told["masterAddress"]) == ("1", "127.0.0.1:7")


def origins_of(patch: pytest.MonkeyPatch, peers: dict[str, Peer]) -> None:
    """Loopback is one host to the controller: from now on these connections come from others, and
    the address of a replica is its own to the host whose name is its IP."""
    import controller.controller_request_processor as module

    hosts = {}
    for host, peer in peers.items():
        name = peer._sock.getsockname()
        hosts[f"{name[0]}:{name[1]}"] = host

    def origin_of(connection: ConnectionLike) -> str:
        return hosts[connection.remote_address]

    def is_own(connection: ConnectionLike, address: str) -> bool:
        return address.partition(":")[0] == origin_of(connection)

    patch.setattr(module, "origin_of", origin_of)
    patch.setattr(module, "is_own_address", is_own)


def test_after_a_start_an_id_is_its_recorded_hosts(tmp_path: Path) -> None:
    """Nobody is known to be alive yet: who is quick would get the id of a living master."""
    register = {**GROUP, "brokerId": 1, "brokerAddress": "127.0.0.1:7", "invokeTime": 1}
    beat = {**GROUP, "brokerId": 1, "brokerAddr": "127.0.0.1:7"}
    apply = {**GROUP, "appliedBrokerId": 1, "registerCheckCode": "127.0.0.1:7;1"}
    elect = {**GROUP, "brokerId": 1, "designateElect": "false", "invokeTime": 1}
    with running(tmp_path) as port, Peer(port) as own:
        for code, fields in ((1013, apply), (1003, register), (1002, elect)):
            assert own.call(code, fields).code == 0
    with (
        running(tmp_path) as port,
        Peer(port) as own,
        Peer(port) as other,
        pytest.MonkeyPatch.context() as patch,
    ):
        origins_of(patch, {"127.0.0.1": own, "10.1.1.1": other})
        for code, fields in ((1003, register), (904, beat), (1002, elect)):
            answer = other.call(code, fields)
            assert answer.code == 16
            if code != 1002:
                assert "leaderWarmUpMillis" in str(answer.remark)
        assert own.call(904, beat).code == 0
        assert own.call(1002, elect).code == 2011
    with (
        running(tmp_path, register_allowed_addresses="127.0.0.1") as port,
        Peer(port) as moved,
        pytest.MonkeyPatch.context() as patch,
    ):
        origins_of(patch, {"10.1.1.1": moved})
        assert moved.call(904, beat).code == 0, "it may speak for others"
    # It has moved, and the controller has listened for long enough: nobody else claims the id.
    with (
        running(tmp_path, leader_warm_up_millis=500) as port,
        Peer(port) as moved,
        pytest.MonkeyPatch.context() as patch,
    ):
        origins_of(patch, {"10.1.1.1": moved})
        deadline = time.monotonic() + DEADLINE_S
        while moved.call(1003, register).code != 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_after_a_start_a_host_name_says_nothing(tmp_path: Path) -> None:
    """It is not looked up where heartbeats would wait for that."""
    register = {**GROUP, "brokerId": 1, "brokerAddress": "localhost:7", "invokeTime": 1}
    apply = {**GROUP, "appliedBrokerId": 1, "registerCheckCode": "localhost:7;1"}
    with running(tmp_path) as port, Peer(port) as own:
        assert own.call(1013, apply).code == 0
        assert own.call(1003, register).code == 0
    with (
        running(tmp_path) as port,
        Peer(port) as own,
        pytest.MonkeyPatch.context() as patch,
    ):
        origins_of(patch, {"10.1.1.1": own})
        assert own.call(1003, register).code == 0


def test_who_may_designate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators anybody. Of brokers, which are none here, only the master: a member of its set that
    shall take over, and itself."""
    import controller.controller_request_processor as module

    elect = {**GROUP, "invokeTime": 1, "designateElect": "true"}
    alter = {"brokerName": "b", "masterBrokerId": 1, "masterEpoch": 1, "invokeTime": 1}
    body = b'{"syncStateSet":[1,2],"syncStateSetEpoch":1}'
    with (
        running(tmp_path, admin_allowed_addresses="10.9.9.9") as port,
        Peer(port) as master,
        Peer(port) as slave,
        Peer(port) as stranger,
    ):
        # To the controller each connection comes from a host of its own.
        monkeypatch.setattr(module, "origin_of", lambda connection: connection.remote_address)
        for number, peer in ((1, master), (2, slave)):
            address = f"127.0.0.1:{number}"
            apply = {**GROUP, "appliedBrokerId": number, "registerCheckCode": f"{address};1"}
            assert peer.call(1013, apply).code == 0
            register = {**GROUP, "brokerId": number, "brokerAddress": address, "invokeTime": 1}
            assert peer.call(1003, register).code == 0
            beat = {**GROUP, "brokerId": number, "brokerAddr": address}
            assert peer.call(904, beat).code == 0
        assert master.call(1002, {**elect, "brokerId": 1}).code == 16, "nobody is master yet"
        assert master.call(1002, {**elect, "brokerId": 1, "designateElect": "false"}).code == 0
        assert master.call(1001, alter, body).code == 0
        for peer in (slave, stranger):
            for number in (1, 2):
                answer = peer.call(1002, {**elect, "brokerId": number})
                assert answer.code == 16
                assert "adminAllowedAddresses" in str(answer.remark)
        assert master.call(1002, {**elect, "brokerId": 1}).ext_fields["masterEpoch"] == "2"
        assert (
            master.call(1001, {**alter, "masterEpoch": 2}, body.replace(b":1}", b":3}")).code == 0
        )
        told = master.call(1002, {**elect, "brokerId": 2}).ext_fields
        assert (told["masterBrokerId"], told["masterEpoch"]) == ("2", "3")
        assert master.call(1002, {**elect, "brokerId": 1}).code == 16, "it is master no more"
        monkeypatch.setattr(RequestGuard, "is_operator", lambda *_: True)
        assert stranger.call(1002, {**elect, "brokerId": 2}).ext_fields["masterEpoch"] == "4"


@pytest.mark.parametrize(
    ("code", "field"),
    [(code, field) for code in (1002, 1003, 1011, 1012) for field in GROUP]
    + [(1004, "brokerName")],
)
def test_a_name_is_echoed_and_kept_up_to_255_characters(
    port_of_one: int, code: int, field: str
) -> None:
    more = {"brokerId": 1, "designateElect": "false", "invokeTime": 1}
    more["brokerAddress"] = "127.0.0.1:1"
    with Peer(port_of_one) as peer:
        for size in (255, 256):
            answer = peer.call(code, {**GROUP, **more, field: "\u00e4" * size})
            named = f"a name of {size}" in str(answer.remark) or "cannot be the name" in str(
                answer.remark
            )
            assert named is (size == 256), answer.remark


def test_bodies_at_their_limits(port_of_one: int) -> None:
    """1,000 members of 19 digits are read; more text than that is not, whatever is in it."""
    alter = {"brokerName": "b", "masterBrokerId": 1, "masterEpoch": 1, "invokeTime": 1}
    ids = [2**63 - 1 - number for number in range(1_000)]
    with Peer(port_of_one) as peer:
        for members, words in (
            (ids, "no such group"),
            ([*ids, 1], "1001 members"),
            ([1] * 20_000, "bytes is no SyncStateSet"),
        ):
            body = json.dumps({"syncStateSet": members, "syncStateSetEpoch": 1}).encode()
            assert words in str(peer.call(1001, alter, body).remark)
        names = json.dumps(["b" * 600_000]).encode()
        assert "no list of broker names" in str(peer.call(1006, {}, names).remark)


def test_a_living_controller_asks_the_rules(tmp_path: Path) -> None:
    """192.0.2.1 is nobody's address; operators are elsewhere."""
    elsewhere = "192.0.2.1:7"
    with running(tmp_path, admin_allowed_addresses="10.9.9.9") as port, Peer(port) as peer:
        for code, fields in (
            (904, {"brokerId": 1, "brokerAddr": elsewhere}),
            (1003, {"brokerId": 1, "brokerAddress": elsewhere, "invokeTime": 1}),
            (1013, {"appliedBrokerId": 1, "registerCheckCode": f"{elsewhere};1"}),
            (1011, {"invokeTime": 1}),
            (1009, {}),
        ):
            assert peer.call(code, {**GROUP, **fields}).code == 16, code
        assert peer.call(1012, GROUP).ext_fields["nextBrokerId"] == "1"


def test_what_waits_for_the_disk_keeps_no_content(
    port_of_one: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands may wait; each could have brought a body of 16 MB."""
    import controller.controller_request_processor as module

    kept, write = [], module.response_of

    def response_of(command: RemotingCommand, *others: Any) -> RemotingCommand:
        kept.append((command.body, command.ext_fields))
        return write(command, *others)

    monkeypatch.setattr(module, "response_of", response_of)
    with Peer(port_of_one) as peer:
        assert peer.call(1012, GROUP, b"x" * 99).code == 0
    assert kept == [(b"", {})]


def test_strangers_names_and_heartbeats_are_not_kept(tmp_path: Path) -> None:
    with running(tmp_path, max_broker_groups=2) as port, Peer(port) as peer:
        for number in range(5):
            name = {"clusterName": "C", "brokerName": f"b{number}"}
            beat = {**name, "brokerId": 1, "brokerAddr": "127.0.0.1:7"}
            assert peer.call(904, beat).code == 0
            assert peer.call(1012, name).ext_fields["nextBrokerId"] == "1"
            applied = {**name, "appliedBrokerId": 1, "registerCheckCode": "127.0.0.1:7;1"}
            answer = peer.call(1013, applied)
            assert (answer.code == 0) is (number < 2)
            if number >= 2:
                assert "maxBrokerGroups" in str(answer.remark)
        names = b'["b0","b1","b2"]'
        assert b"b2" not in peer.call(1006, {}, names).body


@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (1013, {"appliedBrokerId": 1, "registerCheckCode": "127.0.0.1:7;1\n"}, b""),
        (1013, {"appliedBrokerId": 2**63 - 1, "registerCheckCode": "127.0.0.1:7;1"}, b""),
        (
            1013,
            {"brokerName": "a#b", "appliedBrokerId": 1, "registerCheckCode": "127.0.0.1:7"},
            b"",
        ),
        (
            1013,
            {"brokerName": "x" * 300, "appliedBrokerId": 1, "registerCheckCode": "127.0.0.1:7"},
            b"",
        ),
        (1002, {"brokerId": -1, "designateElect": "false", "invokeTime": 1}, b""),
        (1001, {"masterBrokerId": 1, "masterEpoch": 1, "invokeTime": 1}, b"x"),
        (1001, {"masterBrokerId": 1, "masterEpoch": 1, "invokeTime": 1}, b"[" * 100_000),
        (1003, {"brokerId": "one", "brokerAddress": "127.0.0.1:7", "invokeTime": 1}, b""),
        (904, {"brokerId": 1, "brokerAddr": "127.0.0.1:99999"}, b""),
        (1006, {}, b'{"a":1}'),
        (1011, {"brokerControllerIdsToClean": "1;x", "invokeTime": 1}, b""),
    ],
)
def test_bad_input_is_named(
    tmp_path: Path, code: int, fields: dict[str, object], body: bytes
) -> None:
    with running(tmp_path) as port, Peer(port) as peer:
        answer = peer.call(code, {**GROUP, **fields}, body)
        assert answer.code != 0
        assert answer.remark
        assert peer.call(1005, {}).code == 0


def test_the_document_shows_the_table() -> None:
    document = Path(__file__).parents[2] / "docs" / "access.md"
    lines = document.read_text(encoding="utf-8").splitlines()
    head = lines.index("| who, of a controller | changes state | request codes |")
    rows = (
        ("`adminAllowedAddresses`", "yes", OPERATOR_CODES),
        ("the broker that it is about", "yes", BROKER_CODES),
        ("everybody", "no", READING_CODES),
    )
    wanted = [
        f"| {who} | {changes} | {', '.join(map(str, sorted(map(int, codes))))} |"
        for who, changes, codes in rows
    ]
    assert lines[head + 2 : head + 2 + len(rows)] == wanted
