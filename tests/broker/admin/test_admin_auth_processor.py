"""broker.admin.admin_auth_processor: 3001 to 3010 by themselves.

What a 5.3.3 broker answers to the same requests is compared in tests/interop/test_auth.py; here is
what needs no Java, and where ours is stricter.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from broker.admin.admin_auth_processor import NO_ACLS, NO_USERS, AdminAuthProcessor
from broker.auth.authentication_metadata_manager import AuthenticationMetadataManager
from broker.auth.authorization_metadata_manager import AuthorizationMetadataManager
from broker.auth.user import User, UserType
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.response_code import ResponseCode
from tests.broker.broker_fakes import FakeConnection


class Bench:
    """The processor over tables on disk; root is SUPER, bob NORMAL."""

    def __init__(self, directory: Path) -> None:
        self.users = AuthenticationMetadataManager(directory / "users.json")
        self.acls = AuthorizationMetadataManager(directory / "acls.json", self.users)
        self.users.load()
        self.acls.load()
        self.users.create_user(User(username="root", password="root-1", user_type=UserType.SUPER))
        self.users.create_user(User(username="bob", password="bob-1"))
        self._processor = AdminAuthProcessor(self.users, self.acls)

    def ask(self, code: int, body: Any = None, **fields: str) -> Any:
        """The body of the answer. Raises RequestError."""
        data = b"" if body is None else json.dumps(body).encode()
        request = RemotingCommand.request(code, fields, data)
        answer = self._processor.process_request(FakeConnection(), request)
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS
        return json.loads(bytes(answer.body)) if answer.body else None

    def refusal(self, code: int, body: Any = None, **fields: str) -> tuple[int, str]:
        with pytest.raises(RequestError) as caught:
            self.ask(code, body, **fields)
        return int(caught.value.code), caught.value.remark


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def acl_of(subject: str | None, *entries: dict[str, Any], kind: str | None = None) -> Any:
    return {"subject": subject, "policies": [{"policyType": kind, "entries": list(entries)}]}


ALLOW_T = {"resource": "Topic:t", "actions": ["Pub"], "decision": "Allow"}


def test_a_users_life(bench: Bench) -> None:
    bench.ask(3001, {"username": "other", "password": "ann-1"}, username="ann")
    assert bench.ask(3004, username="ann") == {
        "username": "ann",
        "password": "ann-1",
        "userType": "Normal",
        "userStatus": "enable",
    }
    bench.ask(3002, {"userStatus": "disable"}, username="ann")
    assert bench.ask(3004, username="ann")["userStatus"] == "disable"
    assert [user["username"] for user in bench.ask(3005)] == ["ann", "bob", "root"]
    assert [user["username"] for user in bench.ask(3005, filter="oo")] == ["root"]
    bench.ask(3006, acl_of("User:ann", ALLOW_T), subject="User:ann")
    bench.ask(3003, username="ann")
    assert bench.ask(3004, username="ann") is None
    assert bench.acls.find_acl("ann") is None
    bench.ask(3003, username="ann")


def test_an_acls_life(bench: Bench) -> None:
    assert bench.ask(3009, subject="User:bob") is None
    assert bench.ask(3010) is None
    bench.ask(3006, acl_of(None, ALLOW_T), subject="User:bob")
    deny = {**ALLOW_T, "decision": "deny", "sourceIps": ["10.0.0.0/8"]}
    bench.ask(3007, acl_of("User:bob", deny, kind="default"), subject="User:bob")
    stored = acl_of("User:bob", ALLOW_T, kind="Custom")
    stored["policies"].append({"policyType": "Default", "entries": [{**deny, "decision": "Deny"}]})
    assert bench.ask(3009, subject="User:bob") == stored
    assert bench.ask(3010, subjectFilter="bo") == [stored]
    bench.ask(3008, subject="User:bob", resource="Topic:t", policyType="Default")
    assert len(bench.ask(3009, subject="User:bob")["policies"]) == 1
    bench.ask(3008, subject="User:bob")
    assert bench.ask(3010) is None


@pytest.mark.parametrize(
    ("code", "body", "fields", "answer"),
    [
        (3001, {"password": "x"}, {}, (29, "The username is blank")),
        (3001, None, {"username": "x"}, (1, "The body of user is null")),
        (3001, {"password": ""}, {"username": "x"}, (16, "password can not be blank")),
        (3001, {"password": "x"}, {"username": " "}, (16, "username can not be blank")),
        (3001, {"password": "x"}, {"username": "bob"}, (16, "The user is existed")),
        (3002, {"password": "x"}, {"username": "no"}, (16, "The user is not exist")),
        (3003, None, {}, (16, "username can not be blank")),
        (3004, None, {}, (29, "The username is blank")),
        (3006, None, {"subject": "User:bob"}, (1, "The body of acl is null")),
        (3006, acl_of("User:no", ALLOW_T), {}, (16, "The subject of User:no is not exist.")),
        (3006, acl_of("User:bob"), {}, (16, "The policies is empty.")),
        (3009, None, {"subject": "User:no"}, (16, "The subject is not exist.")),
        (3008, None, {"subject": "User:bob"}, (16, "The acl is not exist.")),
        (3008, None, {"subject": "x"}, (16, "The subject is null.")),
        # Stricter than RocketMQ, which takes such a word as if it were not there.
        (
            3001,
            {"password": "x", "userType": "Admin"},
            {"username": "x"},
            (16, "The user type Admin is unknown, expected one of Super, Normal"),
        ),
        (
            3002,
            {"userStatus": "off"},
            {"username": "bob"},
            (16, "The user status off is unknown, expected one of enable, disable"),
        ),
        (
            3006,
            acl_of("User:bob", {**ALLOW_T, "actions": ["Pub", "Subscribe"]}),
            {},
            (16, "The action Subscribe is unknown"),
        ),
        (
            3006,
            acl_of("User:bob", ALLOW_T, kind="Standard"),
            {},
            (16, "The policy type Standard is unknown, expected Custom or Default"),
        ),
        (
            3008,
            None,
            {"subject": "User:bob", "resource": "Topics:t"},
            (16, "The resource Topics:t is unknown"),
        ),
    ],
)
def test_refusals(
    bench: Bench, code: int, body: Any, fields: dict[str, str], answer: tuple[int, str]
) -> None:
    assert bench.refusal(code, body, **fields) == answer


def test_super_users_are_changed_by_super_users(bench: Bench) -> None:
    words = "The super user can only be update by super user"
    bob = {"AccessKey": "bob"}
    new = {"password": "x", "userType": "Super"}
    assert bench.refusal(3001, new, username="x", **bob) == (
        1,
        "The super user can only be create by super user",
    )
    assert bench.refusal(3002, {"userType": "Super"}, username="bob", **bob) == (1, words)
    assert bench.refusal(3002, {"password": "mine"}, username="root", **bob) == (16, words)
    assert bench.refusal(3003, username="root", **bob) == (16, words)
    bench.ask(3002, {"password": "mine"}, username="bob", **bob)
    bench.ask(3001, new, username="x", AccessKey="root")
    # Without authentication there may be no account; where from is the guard's business.
    bench.ask(3003, username="x")


def test_without_tables() -> None:
    processor = AdminAuthProcessor(None, None)
    for code in range(3001, 3011):
        body = b'{"policies":[{}]}'
        request = RemotingCommand.request(code, {"username": "x", "subject": "User:x"}, body)
        with pytest.raises(RequestError) as caught:
            processor.process_request(FakeConnection(), request)
        assert caught.value.code == ResponseCode.SYSTEM_ERROR
        assert caught.value.remark == (NO_USERS if code <= 3005 else NO_ACLS)


def test_changes_are_logged_without_passwords(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    bench.ask(3001, {"password": "hush-hush"}, username="ann")
    bench.ask(3002, {"password": "hush-now"}, username="ann")
    bench.ask(3005)
    assert "user ann: created, requested by 127.0.0.1:40000" in caplog.text
    assert "user ann: updated" in caplog.text
    assert "hush" not in caplog.text


@pytest.mark.parametrize("sources", [[], [None], [" "], ["10.0.0.1", ""]])
def test_a_list_of_sources_that_names_none_is_not_everywhere(bench: Bench, sources: Any) -> None:
    refused = bench.refusal(
        3006, acl_of("User:bob", {**ALLOW_T, "sourceIps": sources}), subject="User:bob"
    )
    assert refused == (ResponseCode.NO_PERMISSION, "The source ip is empty.")
    assert bench.acls.find_acl("bob") is None


def test_rights_given_while_a_user_is_deleted_do_not_outlive_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = bench.users.delete_user

    def delete_late(username: str) -> None:
        bench.ask(3006, acl_of("User:bob", ALLOW_T), subject="User:bob")  # another thread
        delete(username)

    monkeypatch.setattr(bench.users, "delete_user", delete_late)
    bench.ask(3003, username="bob")
    bench.ask(3001, {"password": "bob-2"}, username="bob")
    assert bench.acls.find_acl("bob") is None
