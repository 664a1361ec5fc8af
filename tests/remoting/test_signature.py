"""remoting.signature: what is signed, written out by hand and signed with the standard library."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.remoting_client import RemotingClient
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.remoting_config import RemotingClientConfig
from remoting.signature import RequestSigner, SigningKey, is_signed_with, signed_text
from tests.remoting.fake_peer import FakePeer
from tests.support.frame_decoder import FrameDecoder

KEY = b"12345678"


def java(content: bytes, key: bytes = KEY) -> str:
    """The signature, made without the module under test."""
    return base64.b64encode(hmac.new(key, content, hashlib.sha1).digest()).decode()


def signed(content: bytes, **fields: str) -> RemotingCommand:
    return RemotingCommand.request(10, {**fields, "Signature": java(content)}, b"body")


def test_a_known_signature() -> None:
    """HMAC-SHA1 of RFC 2202, case 2."""
    made = SigningKey(b"Jefe").signature(b"what do ya want", b" for nothing?")
    assert base64.b64decode(made).hex() == "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"


def test_values_in_the_order_of_their_names_then_the_body() -> None:
    request = RemotingCommand.request(
        10, {"topic": "T", "b": "2", "AccessKey": "rocketmq2", "Signature": "x", "a": "1"}, b"\xff!"
    )
    assert signed_text(request.ext_fields) == b"rocketmq2" + b"1" + b"2" + b"T"


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000])
def test_keys_of_every_length(size: int) -> None:
    key = b"\xa5" * size
    made = SigningKey(key).signature(b"text", b"body").decode()
    assert made == java(b"textbody", key)


def test_names_are_compared_in_utf_16_units() -> None:
    """A supplementary character is a pair of surrogates, which come before U+FF5E."""
    request = RemotingCommand.request(10, {"～": "2", "🚀": "1", "z": "0"})
    assert signed_text(request.ext_fields) == b"012"


def test_text_is_signed_in_utf_8() -> None:
    request = signed("Grüße世界🚀body".encode(), AccessKey="Grüße", topic="世界🚀")
    assert is_signed_with(KEY, request)


def test_a_request_without_fields_and_body_signs_nothing() -> None:
    assert signed_text(RemotingCommand.request(34).ext_fields) == b""


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "other"},
        {"more": "field"},
        {"Signature": ""},
        {"Signature": java(b"akTbody", b"87654321")},
        {"Signature": "世界"},
    ],
)
def test_whatever_is_changed_breaks_it(change: dict[str, str]) -> None:
    request = signed(b"akTbody", AccessKey="ak", topic="T")
    assert is_signed_with(KEY, request)
    request.ext_fields.update(change)
    assert not is_signed_with(KEY, request)


def test_another_body_breaks_it() -> None:
    request = signed(b"akTbody", AccessKey="ak", topic="T")
    request.body = b"Body"
    assert not is_signed_with(KEY, request)


def test_a_request_without_signature_is_not_signed() -> None:
    assert not is_signed_with(KEY, RemotingCommand.request(10, {"AccessKey": "ak"}))


def test_a_query_by_unique_key_is_right_with_its_mark_signed_or_not() -> None:
    """Clients of 4.9.8 sign it and a broker of 4.9.8 leaves it out: both are understood here."""
    fields = {"AccessKey": "ak", "_UNIQUE_KEY_QUERY": "true", "topic": "T"}
    assert is_signed_with(KEY, signed(b"aktrueTbody", **fields))
    assert is_signed_with(KEY, signed(b"akTbody", **fields))
    assert not is_signed_with(KEY, signed(b"aktrueT", **fields))


NAMES = st.sampled_from(
    ["a", "b", "AccessKey", "Signature", "topic", "～", "🚀", "_UNIQUE_KEY_QUERY"]
)


def slow_content(fields: dict[str, str]) -> bytes:
    """What a signature covers, written down without remembering anything."""
    names = sorted(fields.keys() - {"Signature"}, key=lambda name: name.encode("utf-16-be"))
    return "".join(fields[name] for name in names).encode()


@given(st.lists(st.tuples(NAMES, st.sampled_from(["", "x", "ü", "1"])), max_size=8))
def test_whatever_order_they_came_in(pairs: list[tuple[str, str]]) -> None:
    """Twice, since the second time the order is remembered."""
    fields = dict(pairs)
    for _ in range(2):
        assert signed_text(fields) == slow_content(fields)


def test_more_orders_than_are_remembered() -> None:
    for number in range(1_000):
        fields = {f"z{number}": "2", f"a{number}": "1", "Signature": "x"}
        assert signed_text(fields) == b"12"
    long = {"b" * 1_000: "2", "a" * 1_000: "1"}
    many = {f"{number:03}": str(number % 10) for number in reversed(range(100))}
    for _ in range(2):
        assert signed_text(long) == b"12"
        assert signed_text(many) == b"0123456789" * 10


@given(st.dictionaries(st.text(), st.text(), max_size=6), st.binary(max_size=20))
def test_what_we_sign_is_right_after_the_wire(fields: dict[str, str], body: bytes) -> None:
    try:
        "".join([*fields, *fields.values()]).encode()
    except UnicodeEncodeError:
        return
    command = RemotingCommand.request(10, fields, body)
    RequestSigner("rocketmq2", "12345678").sign(command)
    frame = encode_command(command)
    decoder = FrameDecoder()
    decoder.feed(frame)
    got = decoder.next_command()
    assert got is not None
    assert got.ext_fields["AccessKey"] == "rocketmq2"
    assert is_signed_with(KEY, got)
    assert not is_signed_with(b"87654321", got)


def test_signing_again_gives_the_same() -> None:
    command = RemotingCommand.request(21)
    signer = RequestSigner("rocketmq2", "12345678")
    signer.sign(command)
    first = dict(command.ext_fields)
    signer.sign(command)
    assert command.ext_fields == first
    assert command.has_ext_fields
    assert first == {"AccessKey": "rocketmq2", "Signature": java(b"rocketmq2")}


def test_a_client_with_a_signer_signs_every_call() -> None:
    with FakePeer() as peer:
        client = RemotingClient(
            RemotingClientConfig(), signer=RequestSigner("rocketmq2", "12345678")
        )
        client.start()
        try:
            answer = client.invoke_sync(
                peer.address, RemotingCommand.request(43, {"z": "1"}, b"body"), 4_000
            )
        finally:
            client.shutdown()
    assert answer.ext_fields["Signature"] == java(b"rocketmq21body")
