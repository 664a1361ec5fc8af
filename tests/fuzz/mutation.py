"""Changing inputs: bytes, JSON texts, remoting frames. Pure; the random decides everything.

`mutate_*` are the strategies of targets (tests/fuzz/target.py): under libFuzzer they take turns
with its own, without it they are all there is.
"""

from __future__ import annotations

import contextlib
import json
import random
import struct
from collections.abc import Sequence
from typing import Any

from remoting.errors import EncodeError, FrameError
from remoting.frame import split_frames
from remoting.remoting_codec import decode_command, encode_command
from remoting.remoting_command import RemotingCommand, SerializeType

EDGES = (0, 1, -1, 2, 7, 16, 127, 128, 255, 256, 32767, 65535, 2**31 - 1, -(2**31), 2**31, 2**32)
LONG_EDGES = (*EDGES, 2**53, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30)
ODD_TEXTS = (
    "",
    " ",
    "null",
    "true",
    "false",
    "NaN",
    "Infinity",
    "1e400",
    "-0",
    "+5",
    "05",
    "1,000",
    "1.5",
    "0x10",
    "٣",
    "9" * 30,
    "9" * 4400,
    "..",
    "../x",
    "a/b",
    "/",
    "nul\0",
    "a\r\nb",
    "x" * 128,
    "x" * 300,
    "ünï",
    "\u2028",
    "😀",
    "%RETRY%",
    "%RETRY%%RETRY%g",
    "%DLQ%g",
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "TBW102",
    "*",
    "a || b",
    "a is not null and b > 3",
    "SQL92",
    "TAG",
    "[]",
    "{}",
    "[" * 200,
    '{"a":' * 200,
    "K\x01v\x02DELAY\x013\x02TRAN_MSG\x01true",
    "UNIQ_KEY\x01a\x02KEYS\x01a b\x02TAGS\x01t",
    "PGROUP\x01G_tx_group\x02TRAN_MSG\x01true\x02UNIQ_KEY\x01u",
    "%s%n%d",
)


def mutate_bytes(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    """A few changes anywhere."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        rng.choice(_BYTE_CHANGES)(rng, changed, tokens)
    return bytes(changed)


def _flip(rng: random.Random, data: bytearray, _tokens: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _replace_byte(rng: random.Random, data: bytearray, _tokens: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)


def _insert(rng: random.Random, data: bytearray, _tokens: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = rng.randbytes(rng.choice((1, 1, 2, 4, 8, 40)))


def _erase(rng: random.Random, data: bytearray, _tokens: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    del data[at : at + rng.choice((1, 1, 2, 4, 8, 40, 400))]


def _copy_part(rng: random.Random, data: bytearray, _tokens: Sequence[bytes]) -> None:
    start, to = rng.randint(0, len(data)), rng.randint(0, len(data))
    data[to:to] = data[start : start + rng.choice((1, 4, 8, 30, 200))]


def _write_number(rng: random.Random, data: bytearray, _tokens: Sequence[bytes]) -> None:
    size = rng.choice((1, 2, 4, 8))
    number = rng.choice(LONG_EDGES) & (1 << 8 * size) - 1
    at = rng.randint(0, len(data))
    data[at : at + size] = number.to_bytes(size, rng.choice(("big", "big", "little")))


def _put_token(rng: random.Random, data: bytearray, tokens: Sequence[bytes]) -> None:
    token = rng.choice(tokens) if tokens else rng.choice(ODD_TEXTS).encode()
    at = rng.randint(0, len(data))
    data[at : at + rng.choice((0, len(token)))] = token


def _put_odd_text(rng: random.Random, data: bytearray, _tokens: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    data[at:at] = rng.choice(ODD_TEXTS).encode()


_BYTE_CHANGES = (
    _flip,
    _replace_byte,
    _insert,
    _erase,
    _copy_part,
    _write_number,
    _put_token,
    _put_token,
    _put_odd_text,
)


# -- JSON ------------------------------------------------------------------------------------------


def mutate_json(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    """One value of a JSON text, or its bytes when it is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return mutate_bytes(rng, data, tokens)
    if rng.random() < 0.3:
        return mutate_bytes(rng, data, tokens)
    for _ in range(rng.choice((1, 1, 2, 4))):
        value = _changed_value(rng, value, tokens)
    return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def _changed_value(rng: random.Random, value: Any, tokens: Sequence[bytes]) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        changed = dict(value)
        change = rng.random()
        if change < 0.1:
            del changed[key]
        elif change < 0.2:
            changed[_odd_key(rng, tokens)] = changed.pop(key)
        elif change < 0.25:
            changed[_odd_key(rng, tokens)] = value[key]
        else:
            changed[key] = _changed_value(rng, value[key], tokens)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.9:
        items = list(value)
        at = rng.randrange(len(items))
        change = rng.random()
        if change < 0.1:
            del items[at]
        elif change < 0.2:
            items[at:at] = items[at : at + 1] * rng.choice((1, 1, 100))
        else:
            items[at] = _changed_value(rng, items[at], tokens)
        return items
    return odd_value(rng, tokens)


def _odd_key(rng: random.Random, tokens: Sequence[bytes]) -> str:
    return _odd_text(rng, tokens)[:300]


def _odd_text(rng: random.Random, tokens: Sequence[bytes]) -> str:
    if tokens and rng.random() < 0.5:
        return rng.choice(tokens).decode(errors="replace")
    if rng.random() < 0.4:
        return str(rng.choice(LONG_EDGES))
    return rng.choice(ODD_TEXTS)


def odd_value(rng: random.Random, tokens: Sequence[bytes] = ()) -> Any:
    """A JSON value that somebody did not expect."""
    nested: Any = rng.choice(([], {}))
    for _ in range(rng.choice((1, 50))):
        nested = [nested] if rng.random() < 0.5 else {"a": nested}
    return rng.choice(
        (
            None,
            True,
            False,
            rng.choice(LONG_EDGES),
            rng.choice((0.5, -1.5, 1e308, float("nan"), float("inf"))),
            _odd_text(rng, tokens),
            _odd_text(rng, tokens),
            [],
            {},
            [None],
            [_odd_text(rng, tokens)],
            {_odd_text(rng, tokens): _odd_text(rng, tokens)},
            nested,
        )
    )


MOST_COMMANDS = 16

# -- frames ----------------------------------------------------------------------------------------


def frames_of(data: bytes) -> list[RemotingCommand]:
    """The commands that `data` begins with, as far as they can be read."""
    found: list[RemotingCommand] = []

    def take(_peer: None, kind: int, header: bytes, body: memoryview) -> bool:
        command = decode_command(header, kind, bytes(body))
        command.serialize_type = SerializeType(kind)
        found.append(command)
        return len(found) < MOST_COMMANDS

    try:
        split_frames(memoryview(data), len(data), take, None)
    except FrameError:
        return found
    return found


def count_frames(data: bytes) -> int:
    """How many frames `data` begins with, also of those that cannot be read."""
    count = 0

    def take(_peer: None, _kind: int, _header: bytes, _body: memoryview) -> bool:
        nonlocal count
        count += 1
        return True

    with contextlib.suppress(FrameError):
        split_frames(memoryview(data), len(data), take, None)
    return count


def mutate_frames(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    """One command of a stream of frames: its fields, its body; seldom the bytes themselves."""
    commands = frames_of(data)
    if not commands or rng.random() < 0.1:
        return mutate_bytes(rng, data, tokens)
    at = rng.randrange(len(commands))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _change_command(rng, commands[at], tokens)
    if rng.random() < 0.05:
        commands.insert(at, commands[rng.randrange(len(commands))])
    try:
        return b"".join(map(encode_command, commands))
    except EncodeError:
        return mutate_bytes(rng, data, tokens)


def _change_command(rng: random.Random, command: RemotingCommand, tokens: Sequence[bytes]) -> None:
    change = rng.random()
    fields = dict(command.ext_fields)
    if change < 0.5 and fields:
        name = rng.choice(list(fields))
        fields[name] = _changed_field(rng, fields[name], list(fields.values()), tokens)
    elif change < 0.55 and fields:
        del fields[rng.choice(list(fields))]
    elif change < 0.62:
        fields[_odd_key(rng, tokens)] = _odd_text(rng, tokens)
    elif change < 0.92:
        mutate = mutate_json if command.body[:1] in (b"{", b"[") else mutate_bytes
        command.body = mutate(rng, command.body, tokens)
    elif change < 0.94:
        command.serialize_type = rng.choice(list(SerializeType))
    elif change < 0.96:
        command.flag ^= rng.choice((1, 2, 3, 1 << 30))
    elif change < 0.98:
        command.version = rng.choice((0, 1, 137, 253, 399, 409, 453, -1, 2**31 - 1))
    else:
        command.remark = rng.choice((None, _odd_text(rng, tokens)))
    command.ext_fields = fields


def _changed_field(
    rng: random.Random, value: str, others: Sequence[str], tokens: Sequence[bytes]
) -> str:
    change = rng.random()
    if change < 0.55:
        return _odd_text(rng, tokens)
    if change < 0.7:
        return rng.choice(others)
    if change < 0.85 and value.lstrip("-").isdigit() and len(value) < 40:
        return str(int(value) + rng.choice((-1, 1, 2, 100, -100, 4096)))
    return mutate_bytes(rng, value.encode(), tokens).decode(errors="replace")


def pack_patches(*patches: tuple[int, bytes]) -> bytes:
    """(place, bytes) pairs as `unpack_patches` reads them; places count modulo 2**32."""
    return b"".join(struct.pack(">IB", at % 2**32, len(data)) + data for at, data in patches)


def unpack_patches(data: bytes) -> list[tuple[int, bytes]]:
    """uint32 place, uint8 length, bytes; repeated. What is left over is ignored."""
    found, at = [], 0
    while at + 5 <= len(data) and len(found) < 64:
        place, size = struct.unpack_from(">IB", data, at)
        found.append((place, data[at + 5 : at + 5 + size]))
        at += 5 + size
    return found
