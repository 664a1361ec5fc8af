"""broker.acl.guarded_route: nothing comes around the gate, and what it saw is what is done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.acl.acl_table import AclTable
from broker.acl.guarded_route import GuardedBinaryRoute, GuardedRoute
from broker.acl.plain_acl_file import PlainAccessConfig, build_account
from broker.acl.request_guard import RequestGuard
from broker.longpolling.pull_header import PullFrame
from broker.pull.pull_message_processor import PULL_PREFIX
from broker.send.send_header import decode_send_frame
from broker.send.send_route import SEND_V2_PREFIX
from remoting.address_patterns import NOBODY
from remoting.connection import Connection
from remoting.errors import RequestError
from remoting.frame import pack_head
from remoting.remoting_codec import MAX_EXT_FIELDS
from remoting.remoting_command import RemotingCommand, SerializeType
from remoting.remoting_server import FastRoutes, RemotingServer
from remoting.request_code import RequestCode
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_processor import ConnectionLike, Route
from remoting.response_code import ResponseCode
from remoting.signature import RequestSigner
from store.batch_codec import BATCH_ITEM_HEAD
from tests.broker.broker_fakes import FakeConnection
from tests.broker.hot_path_world import HotPathWorld, pull_request, send_request

ACCOUNT = PlainAccessConfig(
    access_key="application",
    secret_key="application-secret",
    default_group_perm="SUB",
    topic_perms=("T=PUB|SUB",),
)
SIGNER = RequestSigner("application", "application-secret")
FORGER = RequestSigner("application", "another-secret")


class Recorder:
    """A gate and a fast handler; what each saw."""

    def __init__(self, *, refuses: bool = False, takes: bool = True) -> None:
        self.refuses, self.takes = refuses, takes
        self.checked: list[RemotingCommand] = []
        self.handled: list[tuple[bytes, bytes]] = []

    def check(self, _connection: ConnectionLike, request: RemotingCommand) -> None:
        self.checked.append(request)
        if self.refuses:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "not you")

    def handle(self, _connection: Connection, header: bytes, body: memoryview) -> bool:
        self.handled.append((header, bytes(body)))
        return self.takes

    def take(self, header: bytes, body: bytes = b"body") -> bool:
        """Whether the guarded route of code 310 takes the frame."""
        route = GuardedRoute(SEND_V2_PREFIX, self.handle, self.check)
        connection: Connection = FakeConnection()  # type: ignore[assignment]
        return route(connection, header, memoryview(body))


HEADER = b'{"code":310,"extFields":{"b":"T","AccessKey":"application"},"opaque":1}'


def test_the_gate_sees_the_request_then_the_handler_its_frame() -> None:
    both = Recorder()
    assert both.take(HEADER)
    (request,) = both.checked
    assert (request.code, request.body) == (310, b"body")
    assert request.ext_fields == {"b": "T", "AccessKey": "application"}
    assert both.handled == [(HEADER, b"body")]


def test_what_the_handler_leaves_goes_the_general_way() -> None:
    assert not Recorder(takes=False).take(HEADER)


def test_a_refused_request_does_not_come_to_the_handler() -> None:
    both = Recorder(refuses=True)
    assert not both.take(HEADER)
    assert both.handled == []


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":310,"extFields":{"b":"T"},"code":11}',
        b'{"code":310,"extFields":{"b":5}}',
        b'{"code":310,"extFields":{"b":"\xff"}}',
        b'{"code":310,"opaque":1}',
        b'{"code":310,',
        json.dumps(
            {"code": 310, "extFields": {str(n): "" for n in range(MAX_EXT_FIELDS + 1)}},
            separators=(",", ":"),
        ).encode(),
    ],
    ids=["two codes", "a number", "no UTF-8", "no fields", "cut off", "too many fields"],
)
def test_what_is_not_plain_comes_to_neither(header: bytes) -> None:
    assert header.startswith(SEND_V2_PREFIX)
    both = Recorder()
    assert not both.take(header)
    assert (both.checked, both.handled) == ([], [])


def _text(value: str) -> st.SearchStrategy[str]:
    """JSON of `value`: some characters escaped, some not."""
    return st.lists(st.booleans(), min_size=len(value), max_size=len(value)).map(
        lambda flags: (
            '"'
            + "".join(f"\\u{ord(c):04x}" if f else c for c, f in zip(value, flags, strict=True))
            + '"'
        )
    )


def _fields(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    """extFields with every name at least once, any of them again with another value."""
    again = st.lists(st.sampled_from(names), max_size=4)
    return again.flatmap(
        lambda more: st.permutations([*names, *more]).flatmap(
            lambda order: st.tuples(
                *(st.tuples(_text(name), st.sampled_from("0123456789")) for name in order)
            )
        )
    ).map(lambda pairs: "{" + ",".join(f'{name}:"{digit}"' for name, digit in pairs) + "}")


def _header(code: int, names: tuple[str, ...]) -> st.SearchStrategy[bytes]:
    blocks = st.lists(st.tuples(_text("extFields"), _fields(names)), min_size=1, max_size=2)
    return blocks.map(
        lambda found: (
            f'{{"code":{code},"opaque":1,' + ",".join(f"{k}:{v}" for k, v in found) + "}"
        ).encode()
    )


SEND_NAMES = tuple("abcdefghi")
PULL_NAMES = ("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums")
PULL_NAMES += ("sysFlag", "commitOffset", "suspendTimeoutMillis")


@given(_header(310, SEND_NAMES))
def test_a_send_is_read_as_it_was_checked(header: bytes) -> None:
    both = Recorder()
    assert both.take(header)
    done = msgspec.to_builtins(decode_send_frame(header).extFields)
    checked = both.checked[0].ext_fields
    assert {name: str(done[name]) for name in SEND_NAMES} == checked


@given(_header(11, PULL_NAMES))
def test_a_pull_is_read_as_it_was_checked(header: bytes) -> None:
    both = Recorder()
    connection: Connection = FakeConnection()  # type: ignore[assignment]
    assert GuardedRoute(PULL_PREFIX, both.handle, both.check)(connection, header, memoryview(b""))
    frame = msgspec.json.Decoder(PullFrame, strict=False).decode(header)
    done = msgspec.to_builtins(frame.extFields)
    assert {name: str(done[name]) for name in PULL_NAMES} == both.checked[0].ext_fields


# -- over the real processors ----------------------------------------------------------------------


class Source:
    """AclSource."""

    table = AclTable(accounts={ACCOUNT.access_key: build_account(ACCOUNT)})


class GeneralGate:
    """The gate of the general way: counts how often it was asked."""

    def __init__(self, guard: RequestGuard) -> None:
        self._guard = guard
        self.asked = 0

    def check(self, connection: ConnectionLike, request: RemotingCommand) -> None:
        self.asked += 1
        self._guard.check(connection, request)


def batch_request(body: bytes, **fields: Any) -> RemotingCommand:
    """A batch of one message."""
    item = BATCH_ITEM_HEAD.pack(22 + len(body), 0, 0, 0, len(body)) + body + bytes(2)
    code = RequestCode.SEND_BATCH_MESSAGE
    return send_request(item, code=code, batch="true", **fields)


class Guarded:
    """A world whose server has guarded fast routes."""

    def __init__(self, root: Path) -> None:
        self.world = world = HotPathWorld(root)
        world.topic()
        guard = RequestGuard(NOBODY, "", Source(), world.clock)
        self.general = GeneralGate(guard)
        send, pull = world.send_processor, world.pull_processor
        routes: dict[int, Route] = {RequestCode.PULL_MESSAGE: Route(pull)}
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            routes[code] = Route(send)
        world.server = RemotingServer(
            world.loop,
            RequestDispatcher(routes, gate=self.general.check),
            fast_routes=FastRoutes(
                json=tuple(
                    (prefix, GuardedRoute(prefix, handler, guard.check))
                    for prefix, handler in world.hot.guarded()
                ),
                binary=tuple(
                    (code, GuardedBinaryRoute(code, handler, guard.check))
                    for code, handler in world.hot.binary()
                ),
            ),
        )
        self.client = world.client()

    def call(self, request: RemotingCommand, by: RequestSigner | None) -> RemotingCommand:
        if by is not None:
            by.sign(request)
        return self.client.call(request)


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    made = Guarded(tmp_path)
    assert made.call(send_request(b"first"), SIGNER).code == 0
    made.general.asked = 0
    return made


def test_who_signs_goes_the_fast_way(guarded: Guarded) -> None:
    assert guarded.call(send_request(b"second"), SIGNER).code == 0
    assert guarded.call(batch_request(b"third"), SIGNER).code == 0
    guarded.world.dispatch()
    pulled = guarded.call(pull_request(queueOffset=1), SIGNER)
    assert (pulled.code, b"second" in pulled.body, b"third" in pulled.body) == (0, True, True)
    assert guarded.general.asked == 0


def test_binary_headers_are_guarded_alike(guarded: Guarded) -> None:
    def forms(topic: str) -> list[RemotingCommand]:
        made = [send_request(b"x", topic=topic), batch_request(b"y", topic=topic)]
        made.append(pull_request(topic=topic))
        for request in made:
            request.serialize_type = SerializeType.ROCKETMQ
        return made

    for request in forms("T"):
        assert guarded.call(request, SIGNER).code in (0, 19)
    assert guarded.general.asked == 0
    stored = len(guarded.world.records())
    for by, topic in ((FORGER, "T"), (None, "T"), (SIGNER, "Other")):
        for request in forms(topic):
            answer = guarded.call(request, by)
            assert (answer.remark or "").startswith("org.apache.rocketmq.acl.common.AclException")
    changed = forms("T")[0]
    SIGNER.sign(changed)
    changed.body = b"forged"
    assert "Check signature failed" in (guarded.client.call(changed).remark or "")
    assert len(guarded.world.records()) == stored
    assert guarded.general.asked == 10


@pytest.mark.parametrize(
    ("by", "topic", "words"),
    [
        (None, "T", "No accessKey is configured"),
        (FORGER, "T", "Check signature failed for accessKey=application"),
        (SIGNER, "Other", "No default permission for topic:Other"),
    ],
)
def test_who_may_not_is_told_so(
    guarded: Guarded, by: RequestSigner | None, topic: str, words: str
) -> None:
    requests = (
        send_request(b"lost", topic=topic),
        batch_request(b"lost", topic=topic),
        pull_request(topic=topic),
    )
    for request in requests:
        answer = guarded.call(request, by)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"org.apache.rocketmq.acl.common.AclException: {words}"
    assert guarded.general.asked == 3
    assert [message.body for message in guarded.world.records()] == [b"first"]


def test_a_changed_body_is_no_signed_one(guarded: Guarded) -> None:
    request = send_request(b"signed")
    SIGNER.sign(request)
    request.body = b"forged"
    answer = guarded.client.call(request)
    assert "Check signature failed" in (answer.remark or "")
    assert [message.body for message in guarded.world.records()] == [b"first"]


def tampered(**change: Any) -> RemotingCommand:
    """A signed send of which then something is changed; None takes a field away."""
    request = send_request(b"signed")
    SIGNER.sign(request)
    for name, value in change.items():
        if value is None:
            del request.ext_fields[name]
        else:
            request.ext_fields[name] = value
    return request


@pytest.mark.parametrize("name", ["a", "c", "d", "e", "f", "g", "h", "i", "j", "k", "m"])
@pytest.mark.parametrize("value", ["7", None])
def test_every_field_is_covered(guarded: Guarded, name: str, value: str | None) -> None:
    answer = guarded.client.call(tampered(**{name: value}))
    assert "Check signature failed" in (answer.remark or "")
    assert [message.body for message in guarded.world.records()] == [b"first"]


@pytest.mark.parametrize(
    "change",
    [
        {"zz": "more"},
        {"A": "more"},
        {"世界": "more"},
        {"SecurityToken": "sts"},
        {"Signature": None},
        {"Signature": ""},
        {"Signature": "AAAAAAAAAAAAAAAAAAAAAAAAAAA="},
        {"Signature": "世界"},
    ],
)
def test_more_fields_and_other_signatures(guarded: Guarded, change: dict[str, Any]) -> None:
    answer = guarded.client.call(tampered(**change))
    assert "Check signature failed" in (answer.remark or "")
    assert [message.body for message in guarded.world.records()] == [b"first"]


def test_values_may_not_move_from_one_field_to_another_place(guarded: Guarded) -> None:
    """The order is that of the names, not the one in which they came."""
    answer = guarded.client.call(tampered(a="T", b="producer"))
    assert "Check signature failed" in (answer.remark or "")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("odd", ["", '\x7f\x00"\\/', "ü世界🚀", "\u2028"])
def test_any_order_and_any_text(guarded: Guarded, odd: str, turned: bool) -> None:
    """Signed, whatever the order in which the fields come; with a field that nobody knows, too."""
    request = send_request(b"odd", properties=f"KEYS\x01{odd}\x02")
    request.ext_fields["unknown"] = odd
    SIGNER.sign(request)
    if turned:
        request.ext_fields = dict(reversed(request.ext_fields.items()))
    assert guarded.client.call(request).code == 0
    assert guarded.general.asked == 0
    assert guarded.world.records()[-1].body == b"odd"


def test_numbers_and_truths_are_signed_as_java_reads_them(guarded: Guarded) -> None:
    """A header with values of other types takes the general way, and is checked there."""
    request = send_request(b"typed")
    SIGNER.sign(request)
    fields: dict[str, Any] = dict(request.ext_fields)
    fields["h"], fields["m"] = int(fields["h"]), False
    header = json.dumps({"code": 310, "extFields": fields, "opaque": 1}, separators=(",", ":"))
    frame = pack_head(0, len(header), len(request.body)) + header.encode() + request.body
    assert guarded.client.call(frame).code == 0
    fields["h"] = 5
    header = json.dumps({"code": 310, "extFields": fields, "opaque": 1}, separators=(",", ":"))
    frame = pack_head(0, len(header), len(request.body)) + header.encode() + request.body
    assert "Check signature failed" in (guarded.client.call(frame).remark or "")
    assert guarded.general.asked == 2


def test_a_field_that_comes_twice_is_covered_as_it_counts(guarded: Guarded) -> None:
    request = send_request(b"twice")
    SIGNER.sign(request)
    text = msgspec.json.encode(request.ext_fields).decode()
    for doubled, is_right in (
        ('{"b":"Other",' + text[1:], True),
        (text[:-1] + ',"b":"Other"}', False),
    ):
        header = f'{{"code":310,"extFields":{doubled},"opaque":1}}'.encode()
        frame = pack_head(0, len(header), len(request.body)) + header + request.body
        assert (guarded.client.call(frame).code == 0) is is_right
