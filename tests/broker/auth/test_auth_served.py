"""Real brokers with users and ACLs: nothing comes around the guard, changes survive a kill, a slave
follows its master with the account of innerClientAuthenticationCredentials, secrets stay inside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from broker.send.send_header import V2_NAMES
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.signature import RequestSigner
from tests.broker.acl.test_acl_served import SignedClient, client, sent
from tests.broker.auth.test_auth_config import ACLS, USERS
from tests.broker.hot_path_world import send_fields
from tests.support.broker_group import ASYNC_MASTER, SLAVE, TOPIC, Group, log_of
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker

SETTINGS: Final = {
    "authenticationEnabled": "true",
    "authenticationMetadataProvider": USERS,
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
    "authorizationEnabled": "true",
    "authorizationMetadataProvider": ACLS,
}
ROOT: Final = RequestSigner("root", "root-secret")
APPLICATION: Final = RequestSigner("app", "app-secret")
FORGER: Final = RequestSigner("root", "app-secret")


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with Group(tmp_path).running() as found:
        yield found


def ask(asking: SignedClient, code: int, body: Any = None, **fields: str) -> Any:
    answer = asking.call(code, fields, b"" if body is None else json.dumps(body).encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return json.loads(bytes(answer.body)) if answer.body else None


def give_application_its_rights(broker: OurBroker) -> None:
    entries = [
        {"resource": f"Topic:{TOPIC}", "actions": ["Pub", "Sub", "Get"], "decision": "Allow"},
        {"resource": "Group:*", "actions": ["Sub"], "decision": "Allow"},
    ]
    with client(broker, ROOT) as operator:
        ask(operator, 3001, {"password": "app-secret"}, username="app")
        ask(operator, 3006, {"policies": [{"entries": entries}]}, subject="User:app")


def test_users_and_rights_hold_on_all_ways_in(group: Group, tmp_path: Path) -> None:
    broker = group.start(group.first, ASYNC_MASTER, **SETTINGS)
    give_application_its_rights(broker)
    for nobody in (None, FORGER):
        for port in ("main", "vip"):
            with client(broker, nobody, port) as unknown:
                answer = unknown.send(TOPIC, 0, b"lost")
                assert answer.code == ResponseCode.NO_PERMISSION
        with client(broker, nobody) as unknown:
            assert unknown.pull(TOPIC, 0, 0).code == ResponseCode.NO_PERMISSION
    with client(broker, APPLICATION) as application:
        assert application.send(TOPIC, 0, b"kept").code == ResponseCode.SUCCESS
        wait_until(lambda: application.offset(30, TOPIC, 0) == 1)
        assert [m.body for m in application.pull(TOPIC, 0, 0).messages] == [b"kept"]
        other = application.send("Other", 0, b"lost")
        assert (other.code, other.remark) == (
            ResponseCode.NO_PERMISSION,
            "User:app has no permission to access Topic:Other from 127.0.0.1, no matched policies.",
        )
        config = application.call(RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4")
        assert config.code == ResponseCode.NO_PERMISSION
        # A right that is taken away is missed by the next request.
        with client(broker, ROOT) as operator:
            others_topic_stays_shut(application, operator)
            ask(operator, 3008, subject="User:app", resource=f"Topic:{TOPIC}")
        assert application.send(TOPIC, 0, b"lost").code == ResponseCode.NO_PERMISSION
    changes_survive_a_kill_and_secrets_stay_inside(group, broker, tmp_path)


def others_topic_stays_shut(application: SignedClient, operator: SignedClient) -> None:
    """Not by a second topic in the request, nor by the place of a message (33, 309)."""
    secret = sent(operator, "Other")
    long_names = {V2_NAMES[name]: text for name, text in send_fields(topic=TOPIC).items()}
    two_topics = application.call(RequestCode.SEND_MESSAGE, {**long_names, "b": "Other"}, b"own")
    assert two_topics.code == ResponseCode.SUCCESS
    wait_until(lambda: application.offset(30, TOPIC, 0) == 2)
    place = str(int(secret.ext_fields["msgId"][-16:], 16))
    looked = application.call(RequestCode.VIEW_MESSAGE_BY_ID, {"topic": TOPIC, "offset": place})
    direct = {"consumerGroup": "g", "clientId": "c", "msgId": secret.ext_fields["msgId"]}
    pushed = application.call(RequestCode.CONSUME_MESSAGE_DIRECTLY, {**direct, "topic": TOPIC})
    for answer in (looked, pushed):
        assert (answer.code, answer.body) == (ResponseCode.NO_PERMISSION, b"")
        assert "Topic:Other" in (answer.remark or "")


def changes_survive_a_kill_and_secrets_stay_inside(
    group: Group, broker: OurBroker, tmp_path: Path
) -> None:
    """The rest of the test, with the same broker."""
    with client(broker, ROOT) as operator:
        ask(operator, 3002, {"password": "root-new-secret"}, username="root")
    with client(broker, RequestSigner("root", "root-new-secret")) as operator:
        shown = bytes(operator.call(RequestCode.GET_BROKER_CONFIG, {}).body).decode()
    assert "authorizationEnabled=true" in shown
    assert "secret" not in shown
    broker.crash()
    broker = group.start(group.first, ASYNC_MASTER, **SETTINGS)
    with client(broker, APPLICATION) as application:
        refused = application.send(TOPIC, 0, b"lost")
        assert "Topic:" in (refused.remark or "")  # signed right, the right is still taken away
    # initAuthenticationUser makes no user again, and gives none its old password.
    with client(broker, ROOT) as old:
        assert old.send(TOPIC, 0, b"lost").code == ResponseCode.NO_PERMISSION
    for name in ("remoting", "supervisor"):
        assert "-secret" not in broker.log(name)
    files = (path for path in tmp_path.rglob("*") if path.is_file())
    small = [path for path in files if path.stat().st_size < 1 << 20]
    holding = {path.name for path in small if b"app-secret" in path.read_bytes()}
    assert holding == {"users.json", "users.json.bak"}


def test_a_slave_follows_with_the_inner_account(group: Group) -> None:
    first = group.start(group.first, ASYNC_MASTER, **SETTINGS)
    second = group.start(group.second, SLAVE, slaveSyncInterval=200, **SETTINGS)
    give_application_its_rights(first)
    with client(first, APPLICATION) as application:
        assert application.send(TOPIC, 0, b"kept").code == ResponseCode.SUCCESS
    wait_until(lambda: log_of(second) == log_of(first), 20)

    def follows() -> bool:
        with client(second, ROOT) as operator:
            status = json.loads(operator.call(RequestCode.GET_BROKER_HA_STATUS, {}).body)
        kinds = status["slaveSync"].values()
        return len(kinds) == 4 and all(kind.get("lastSuccessTimestamp") for kind in kinds)

    wait_until(follows, 20)
    # Users are each broker's own, as in RocketMQ: an operator tells both.
    with client(second, APPLICATION) as application:
        refused = application.call(30, {"topic": TOPIC, "queueId": 0})
        assert refused.remark == "User:app is not found."
    give_application_its_rights(second)
    with client(second, APPLICATION) as application:
        wait_until(lambda: application.offset(30, TOPIC, 0) == 1)
