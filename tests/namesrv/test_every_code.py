"""Every request code of the name server against every kind of sender: the guard does what its
table says, and the document shows the table."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from namesrv.holder_probe import HolderProbe
from namesrv.namesrv_config import NamesrvConfig
from namesrv.request_guard import BROKER_CODES, OPERATOR_CODES, READING_CODES, RequestGuard
from remoting.body.route import QueueData, TopicRouteData
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.response_table import ResponseTable
from tests.namesrv.conftest import FakeConnection, Namesrv
from tests.namesrv.namesrv_peer import registration

pytestmark = pytest.mark.fault(44)

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "access.md"
OWNER_IP, NAMED_IP, FAR_IP = "10.0.0.5", "10.0.0.8", "10.0.0.9"
OWNER: Final = f"{OWNER_IP}:10911"
"""The registered master of broker name `a`."""
FAR: Final = {"remote_address": f"{FAR_IP}:4711"}
SENDERS: Final = {
    "loopback": {"remote_address": "127.0.0.1:4711"},
    "another loopback address": {"remote_address": "127.0.0.2:4711"},
    "IPv6 loopback": {"remote_address": "::1:4711"},
    "this machine by its name": {"remote_address": "10.0.0.1:4711", "is_from_this_machine": True},
    "remote": FAR,
    "remote operator": FAR,
    "remote with certificate": FAR,
    "remote that may register for others": {"remote_address": f"{NAMED_IP}:4711"},
    "registered broker": {"remote_address": f"{OWNER_IP}:4711"},
}
OPERATORS: Final = {
    *("loopback", "another loopback address", "IPv6 loopback", "this machine by its name"),
    "remote operator",
}
"""Who may change something, but for what brokers report."""


def guard_for(sender: str, namesrv: Namesrv) -> RequestGuard:
    """That of a name server with a registered broker, and the settings of that sender."""
    config = NamesrvConfig(
        admin_allowed_addresses=(
            FAR_IP if sender == "remote operator" else NamesrvConfig().admin_allowed_addresses
        ),
        register_allowed_addresses=NAMED_IP,
    )
    return RequestGuard(
        config,
        namesrv.routes,
        lambda: namesrv.now_ms,
        HolderProbe(ResponseTable(), lambda: namesrv.now_ms),
        has_certificates=sender == "remote with certificate",
    )


def registered(namesrv: Namesrv) -> Namesrv:
    """With the owner, alive."""
    request = registration("a")
    request.ext_fields["brokerAddr"] = OWNER
    owner = FakeConnection(7, f"{OWNER_IP}:5000")
    assert namesrv.ask(request, owner).code == ResponseCode.SUCCESS
    return namesrv


def request_of(code: int, address: str, broker_id: int = 0, name: str = "a") -> RemotingCommand:
    """A broker's requests are about the broker at `address`; the others have nothing to judge."""
    fields = {"brokerName": name, "brokerAddr": address, "clusterName": "C", "topic": "T"}
    fields |= {"brokerId": str(broker_id), "haServerAddr": address}
    route = TopicRouteData(
        queue_datas=[QueueData(broker_name=name, read_queue_nums=4)],
        broker_datas=[],
        filter_server_table={},
    )
    body = route.to_json_bytes() if code == RequestCode.REGISTER_TOPIC_IN_NAMESRV else b""
    return RemotingCommand.request(code, fields, body)


def is_let_in(guard: RequestGuard, sender: str, request: RemotingCommand) -> bool:
    values = SENDERS[sender]
    connection = FakeConnection(
        9, str(values["remote_address"]), is_from_this_machine="is_from_this_machine" in values
    )
    try:
        guard.check(connection, request)
    except RequestError as error:
        return error.code != ResponseCode.NO_PERMISSION
    return True


@pytest.mark.parametrize("sender", SENDERS)
def test_operators_and_readers(namesrv: Namesrv, sender: str) -> None:
    guard = guard_for(sender, registered(namesrv))
    codes = set(namesrv.processor.codes) - BROKER_CODES
    got = {code: is_let_in(guard, sender, request_of(code, OWNER)) for code in codes}
    is_operator = sender in OPERATORS
    assert got == {code: code in READING_CODES or is_operator for code in codes}
    assert codes == READING_CODES | OPERATOR_CODES


@pytest.mark.parametrize("sender", SENDERS)
def test_reports_about_a_living_broker(namesrv: Namesrv, sender: str) -> None:
    """Whoever exempts a peer from naming its own address does not let it take what another holds;
    a topic's route names no address, so the exempt may change it."""
    guard = guard_for(sender, registered(namesrv))
    got = {code: is_let_in(guard, sender, request_of(code, OWNER)) for code in BROKER_CODES}
    is_exempt = sender in ("remote with certificate", "remote that may register for others")
    is_owner = sender == "registered broker"
    wanted = {
        code: is_owner or (is_exempt and code == RequestCode.REGISTER_TOPIC_IN_NAMESRV)
        for code in BROKER_CODES
    }
    assert got == wanted


@pytest.mark.parametrize("sender", SENDERS)
def test_reports_about_a_broker_of_its_own(namesrv: Namesrv, sender: str) -> None:
    guard = guard_for(sender, registered(namesrv))
    host = str(SENDERS[sender]["remote_address"]).rpartition(":")[0]
    if sender == "this machine by its name":
        host = "127.0.0.1"
    requests = [request_of(code, f"{host}:10911", 1, "b") for code in BROKER_CODES]
    assert [request.code for request in requests if not is_let_in(guard, sender, request)] == []


@pytest.mark.parametrize("sender", SENDERS)
def test_reports_about_somebody_elses_broker(namesrv: Namesrv, sender: str) -> None:
    """At 10.0.0.77, where nobody is registered."""
    guard = guard_for(sender, registered(namesrv))
    is_exempt = sender in ("remote with certificate", "remote that may register for others")
    codes = BROKER_CODES - {RequestCode.REGISTER_TOPIC_IN_NAMESRV}
    for code in codes:
        request = request_of(code, "10.0.0.77:10911", 1, "b")
        assert is_let_in(guard, sender, request) == is_exempt, code


@pytest.mark.parametrize("sender", SENDERS)
def test_codes_that_nobody_serves_are_denied(namesrv: Namesrv, sender: str) -> None:
    guard = guard_for(sender, registered(namesrv))
    unknown = set(RequestCode) - set(namesrv.processor.codes)
    assert unknown
    for code in (*unknown, -1, 0, 99_999):
        assert not is_let_in(guard, sender, request_of(int(code), OWNER)), code


@pytest.mark.parametrize("claimed", [OWNER_IP, "127.0.0.1", NAMED_IP])
def test_an_address_cannot_be_claimed_in_a_field(namesrv: Namesrv, claimed: str) -> None:
    guard = guard_for("remote", registered(namesrv))
    for code in OPERATOR_CODES | BROKER_CODES:
        request = request_of(code, OWNER)
        for name in ("X-Forwarded-For", "X-Real-IP", "remoteAddr", "clientHost", "AccessKey"):
            request.ext_fields[name] = claimed
        request.remark = claimed
        assert not is_let_in(guard, "remote", request)


def test_the_document_shows_the_table() -> None:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    head = lines.index("| who, of a name server | changes state | request codes |")
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
