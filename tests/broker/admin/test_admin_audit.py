"""The audit of changes: which requests have a line, what is in it, the files, and request 28914."""

from __future__ import annotations

import json
import logging
import os
import resource
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker.acl.access_table import ACCESS_TABLE, Who
from broker.admin.admin_audit import (
    REFUSAL_LIMIT,
    REFUSALS_A_DAY,
    REFUSALS_A_MINUTE,
    AdminAudit,
)
from broker.admin.admin_audit_files import (
    ANSWER_LIMIT,
    FILE_LIMIT,
    FILES,
    LINE_LIMIT,
    AdminAuditFiles,
)
from broker.admin.admin_audit_processor import AdminAuditProcessor
from broker.admin.admin_audit_what import AUDITED, is_audited, told_of
from remoting.body.admin_audit import AdminAuditAnswer, AdminAuditEntry
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code
from remoting.response_code import ResponseCode
from tests.broker.acl.test_acl_served import (
    ACCOUNTS,
    APPLICATION,
    OPERATOR,
    STRANGER,
    client,
    home_of,
)
from tests.broker.broker_fakes import FakeClock, FakeConnection, request_of
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker

AUDIT = 28914
NOT_OPERATORS = {
    # Messages, pops and transactions.
    *(10, 36, 37, 310, 320, 324, 325, 370, 200050, 200051, 200053, 200070, 200151),
    # Clients: heartbeats, offsets, locks.
    *(15, 34, 35, 41, 42, 200071),
    # Brokers of the group, by themselves.
    *(905, 906, 28906),
}


def test_every_code_that_changes_something_is_audited_or_said_not_to_be_an_operators() -> None:
    """A new code that changes something: make it an operator's in the access table, or say here
    why it is none."""
    changing = {int(code) for code, row in ACCESS_TABLE.items() if row.changes_state}
    assert changing - AUDITED == NOT_OPERATORS
    assert not {code for code in AUDITED if ACCESS_TABLE[code].who is not Who.ADMIN}
    assert {17, 215, 200, 207, 25, 50, 51, 53, 222, 323, 28910, 3001, 3006} <= AUDITED


class World:
    """An audit over real files."""

    def __init__(self, root: Path, file_limit: int = 4 << 20) -> None:
        self.clock = FakeClock()
        self.path = root / "config" / "adminAudit.jsonl"
        self.signer: str | None = None
        self.in_pool: list[Callable[[], None]] = []
        self.pool_is_full = False
        self.files = AdminAuditFiles(self.path.parent, file_limit)
        self.audit = AdminAudit(
            self.files, self.clock, lambda _: self.signer, lambda code: code == 2002, self._submit
        )

    def _submit(self, run: Callable[[], None]) -> bool:
        if not self.pool_is_full:
            self.in_pool.append(run)
        return not self.pool_is_full

    def serve(self, request: RemotingCommand, answer: Any = ResponseCode.SUCCESS) -> None:
        """`answer`: a code, an exception, or a function of the request."""

        class Processor:
            def process_request(self, _connection: Any, request: RemotingCommand) -> Any:
                if isinstance(answer, Exception):
                    raise answer
                return answer(request) if callable(answer) else request.response(answer)

        wrapped = self.audit.over({request.code: Processor()})[request.code]
        wrapped.process_request(FakeConnection("10.0.0.9:4711"), request)

    def refuse(self, request: RemotingCommand) -> None:
        error = RequestError(ResponseCode.NO_PERMISSION, "not you")
        self.audit.refused(FakeConnection("10.0.0.8:1"), request, error)

    def ask(self, **fields: Any) -> AdminAuditAnswer:
        processor = AdminAuditProcessor(self.audit)
        answer = processor.process_request(FakeConnection(), request_of(AUDIT, **fields))
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS
        assert len(answer.body) <= ANSWER_LIMIT
        return msgspec.json.decode(answer.body, type=AdminAuditAnswer)

    def entries(self) -> list[AdminAuditEntry]:
        """Oldest first."""
        return self.ask(maxLines=1000).entries[::-1]


def new_topic(name: str = "t", **more: Any) -> RemotingCommand:
    return request_of(17, topic=name, readQueueNums=8, **more)


def test_a_line_says_who_did_what_from_where_and_with_which_result(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.signer = "operator"
    world.serve(new_topic(AccessKey="operator", Signature="c2lnbmF0dXJl"))
    world.signer = None
    world.serve(request_of(25, b"flushDiskType=SYNC_FLUSH\n# a=b\nbrokerPermission = 4"))
    with pytest.raises(RequestError):
        world.serve(request_of(215, topic="t"), RequestError(ResponseCode.SYSTEM_ERROR, "no t"))
    with pytest.raises(KeyError):
        world.serve(request_of(207, groupName="g"), KeyError("bug"))
    world.refuse(request_of(3001, b'{"username":"eve","password":"hush"}', username="eve"))
    first, *others = [json.loads(line) for line in world.path.read_text().splitlines()]
    assert first == {
        "number": 1,
        "time": world.clock.now,
        "who": "operator",
        "address": "10.0.0.9:4711",
        "code": 17,
        "name": "UPDATE_AND_CREATE_TOPIC",
        "what": {"topic": "t", "readQueueNums": "8"},
        "result": 0,
        "remark": "",
        "leftOut": 0,
    }
    assert [(line["who"], line["result"], line["remark"], line["what"]) for line in others] == [
        (None, 0, "", {"body": {"flushDiskType": "SYNC_FLUSH", "brokerPermission": "4"}}),
        (None, 1, "no t", {"topic": "t"}),
        (None, 1, "KeyError: 'bug'", {"groupName": "g"}),
        (
            None,
            ResponseCode.NO_PERMISSION,
            "not you",
            {"username": "eve", "body": {"username": "eve", "password": "(hidden)"}},
        ),
    ]


def test_what_was_asked_is_told_though_the_processor_changes_its_request(tmp_path: Path) -> None:
    world = World(tmp_path)

    def processor(request: RemotingCommand) -> RemotingCommand:
        request.ext_fields.clear()
        request.body = b"a record"
        return request.response(ResponseCode.SUCCESS)

    world.serve(request_of(309, clientId="c"), processor)
    assert world.entries()[0].what == {"clientId": "c"}


def test_looks_and_messages_have_no_line(tmp_path: Path) -> None:
    world = World(tmp_path)
    for request in (
        request_of(10, topic="t"),
        request_of(26),
        request_of(28910, action="status"),
        request_of(353, group="g", topic="t"),
    ):
        assert not is_audited(request)
        world.serve(request)
        world.refuse(request)
    assert not world.path.exists()
    assert world.ask() == AdminAuditAnswer()
    world.serve(request_of(28910, action="scrub"))
    world.serve(request_of(353, group="g", topic="t", readable="false"))
    assert [entry.code for entry in world.entries()] == [28910, 353]


def test_secrets_are_left_out_wherever_they_are() -> None:
    secret = "hush-hush"
    account = request_of(50, accessKey="shown", secretKey=secret, topicPerms="t=PUB")
    assert told_of(account) == {
        "accessKey": "shown",
        "secretKey": "(hidden)",
        "topicPerms": "t=PUB",
    }
    bodies = (
        (25, f'initAuthenticationUser={{"username":"u","password":"{secret}"}}\n'),
        (25, f"tls.server.keyPassword: {secret}"),
        (25, f"tls.server.keyPassword=\\\n  {secret}"),
        (25, f"tls.server.key\\u0050assword={secret}"),
        (25, f'harmless={{"secretKey":"{secret}"}}'),
        (3001, json.dumps({"users": [{"username": "u", "password": secret}]})),
        (3002, json.dumps({"a": {"apiToken": secret, "b": [{"Passwort": secret}]}})),
    )
    for code, text in bodies:
        told = told_of(request_of(code, text.encode()))
        assert told["body"], text
        assert secret not in str(told), (code, text)


def test_bodies_that_are_no_json_or_very_long_or_deep_are_a_size() -> None:
    deep = b"[" * 100_000
    for body in (b"\xff\x00", deep, b'"' + b"x" * (1 << 20) + b'"'):
        assert told_of(request_of(18, body))["body"] == f"{len(body)} bytes"
    settings = b"a=b\n" * 5_000
    assert told_of(request_of(25, settings))["body"] == "20000 bytes", "slower to read than JSON"
    assert told_of(request_of(2002, b"group\xff"))["body"] == "group\ufffd"


def test_a_line_is_short_whatever_is_asked(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.signer = "\x01" * 300
    hostile = "\x01<script>" + "\x02" * 300
    many = {f"{hostile}{number}": hostile for number in range(100)}
    topics = json.dumps({"list": [{"name": hostile}] * 700}).encode()
    with pytest.raises(ValueError, match="x"):
        world.serve(request_of(18, topics, **many), ValueError("x\x03" * 1_000_000))
    world.serve(request_of(17, topic="\ud800"))
    for line in world.path.read_bytes().splitlines():
        assert len(line) <= LINE_LIMIT
    names = json.dumps({"topicConfigList": [{"topicName": "n" * 300}] * 50}).encode()
    world.serve(request_of(18, names))
    told = world.entries()[-1].what["body"]["topicConfigList"]
    assert told[0] == {"topicName": "n" * 100 + "… (300 characters)"}
    assert told[-1] == "… (50 in all)"


def test_what_runs_on_the_loop_is_written_by_the_pool(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.serve(request_of(2002, b"g"))
    assert not world.path.exists()
    world.in_pool.pop()()
    world.pool_is_full = True
    world.serve(request_of(2002, b"lost"))
    world.serve(new_topic())
    found = [(entry.what, entry.left_out) for entry in world.entries()]
    assert found == [({"body": "g"}, 0), ({"topic": "t", "readQueueNums": "8"}, 1)]


def test_refusals_are_limited_and_changes_are_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(REFUSALS_A_MINUTE + 5):
        world.refuse(new_topic())
    world.serve(new_topic())
    assert len(world.entries()) == REFUSALS_A_MINUTE + 1
    assert world.entries()[-1].left_out == 5
    world.clock.advance(60_000)
    world.refuse(new_topic())
    assert len(world.entries()) == REFUSALS_A_MINUTE + 2


def test_whoever_may_do_nothing_cannot_push_out_what_others_did(tmp_path: Path) -> None:
    """A day of refused requests, each as long as a line may be, takes little of the files."""
    world = World(tmp_path)
    fields = {f"field-{number}": "x" * 300 for number in range(40)}
    body = json.dumps({"list": ["y" * 300] * 40}).encode()
    for _ in range(24):
        for _ in range(REFUSALS_A_MINUTE):
            world.refuse(request_of(17, body, **fields))
        world.clock.advance(3_600_000)
    sizes = [len(line) for line in world.path.read_bytes().splitlines()]
    assert len(sizes) <= 2 * REFUSALS_A_DAY, "the day may change in between"
    assert max(sizes) <= REFUSAL_LIMIT
    assert sum(sizes) < FILES * FILE_LIMIT / 30


def test_numbers_go_on_after_a_restart_and_a_torn_line_is_skipped(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in "abc":
        world.serve(new_topic(name))
    world.audit.close()
    os.truncate(world.path, world.path.stat().st_size - 10)
    again = World(tmp_path)
    assert [entry.what["topic"] for entry in again.entries()] == ["a", "b"]
    again.serve(new_topic("d"))
    found = [(entry.number, entry.what["topic"]) for entry in again.entries()]
    assert found == [(1, "a"), (2, "b"), (3, "d")]


def test_files_are_rotated_and_the_oldest_removed(tmp_path: Path) -> None:
    world = World(tmp_path, file_limit=1_000)
    for number in range(100):
        world.serve(new_topic(f"t{number}"))
    names = sorted(path.name for path in world.path.parent.iterdir())
    assert len(names) == FILES
    assert all(path.stat().st_size <= 1_000 for path in world.path.parent.iterdir())
    found = [entry.number for entry in world.entries()]
    assert found == list(range(found[0], 101))
    assert 1 < found[0] < 80
    # Renamed, and then the process ended: the new file is not there yet.
    world.path.rename(world.path.with_name("adminAudit.jsonl.0"))
    world.path.with_name("adminAudit.jsonl.0").unlink()
    again = World(tmp_path, file_limit=1_000)
    again.serve(new_topic("next"))
    assert again.entries()[-1].number == again.entries()[-2].number + 1


def test_pages_before_a_number_and_before_a_time(tmp_path: Path) -> None:
    world = World(tmp_path, file_limit=1_000)
    for number in range(1, 21):
        world.clock.now = number * 1000
        world.serve(new_topic(f"t{number}"))
    page = world.ask(maxLines=6)
    assert [entry.number for entry in page.entries] == [20, 19, 18, 17, 16, 15]
    page = world.ask(maxLines=14, beforeNumber=page.before_number)
    assert [entry.number for entry in page.entries] == list(range(14, 0, -1))
    assert page.before_number is None
    page = world.ask(beforeTimestamp=3_000)
    assert [entry.number for entry in page.entries] == [2, 1]
    for count in (0, 1_001):
        with pytest.raises(RequestError, match="between 1 and 1000"):
            world.ask(maxLines=count)


def test_an_answer_is_bounded_and_says_where_to_go_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(300):
        long: dict[str, Any] = {f"f{number}": "x" * 300 for number in range(20)}
        world.serve(request_of(17, **long))
    page = world.ask(maxLines=1000)
    assert len(page.entries) < 300
    assert page.before_number == page.entries[-1].number
    rest = world.ask(maxLines=1000, beforeNumber=page.before_number)
    assert len(page.entries) + len(rest.entries) == 300


def test_what_somebody_else_wrote_is_skipped(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.serve(new_topic())
    with world.path.open("ab") as file:
        file.write(b"\n\nnot json\n[1]\n" + b"x" * (2 << 20) + b"\n")
    world.serve(new_topic())
    assert [entry.number for entry in world.entries()] == [1, 2]


def test_a_full_disk_costs_lines_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path)
    world.serve(new_topic("first"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    caplog.set_level(logging.ERROR)
    resource.setrlimit(resource.RLIMIT_FSIZE, (world.path.stat().st_size + 20, limits[1]))
    try:
        for name in ("lost", "lost too"):
            world.serve(new_topic(name))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    world.serve(new_topic("last"))
    found = [(entry.number, entry.what["topic"], entry.left_out) for entry in world.entries()]
    assert found == [(1, "first", 0), (2, "last", 2)]
    assert len([line for line in caplog.messages if "cannot be written" in line]) == 1


def test_a_running_broker_with_accounts(tmp_path: Path) -> None:
    home = home_of(tmp_path / "home", ACCOUNTS)
    broker = OurBroker(tmp_path, aclEnable="true", namesrvAddr="")
    broker.env["ROCKETMQ_HOME"] = str(home)
    topic = {"topic": "audited", "defaultTopic": "TBW102", "readQueueNums": 4}
    topic |= {"writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG", "order": "false"}
    with broker.start():
        for by in (OPERATOR, APPLICATION, STRANGER, None):
            with client(broker, by) as asking:
                asking.call(Code.UPDATE_AND_CREATE_TOPIC, topic)
        with client(broker, OPERATOR) as operator:
            operator.call(Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, {}, b"g")  # On the loop.
            operator.call(Code.UPDATE_BROKER_CONFIG, {}, b"noSuchKey=1\n")
        with client(broker, None) as nobody:
            assert nobody.call(AUDIT, {}).code != ResponseCode.SUCCESS
        with client(broker, APPLICATION) as mine:

            def entries() -> list[AdminAuditEntry]:
                body = mine.call(AUDIT, {"maxLines": 10}).body
                return msgspec.json.decode(body, type=AdminAuditAnswer).entries

            wait_until(lambda: len(entries()) == 6)
            found = entries()
    assert Counter((each.code, each.who, each.result == 0) for each in found) == {
        (17, "operator", True): 1,
        (17, "application", False): 1,
        (17, None, False): 2,
        (2002, "operator", True): 1,
        (25, "operator", False): 1,
    }
    assert all(each.address.startswith("127.0.0.1:") for each in found)
    assert len(list(tmp_path.rglob("adminAudit.jsonl"))) == 1
