"""Places of a request that can grow: texts, lists, maps, numbers and raw bodies, and the frames in
which one of them has been grown to a size.

Nothing here lists fields: they come from the seeds of the request codes, and from the typed headers
and bodies that the product reads while a seed is run (`recorded`). A new field is grown as soon as
a processor decodes it. Pure but for `recorded`, which looks at the caches of the two decoders.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from enum import StrEnum
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from remoting import command_custom_header
from remoting.body import json_bean
from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import CommandCustomHeader, Int32, Int64, camel_case
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand, SerializeType
from store.batch_codec import MOST_BATCH_MESSAGES, encode_item

FILLERS: Final = {
    "letters": "a",
    "set bits": "/",
    "clear bits": "AAAA",
    "digits": "7",
    "spaces": " ",
    "words": "k ",
    "commas": "a,",
    "colons": "a:1;",
    "alternatives": "a||",
    "pairs": "WAIT\x01\x02",
    "half pairs": "xWAIT\x01",
    "delays": "\x02TIMER_DELIVER_MS\x011",
    "ends": "\x02",
    "brackets": "(",
    "lists": "[",
    "objects": '{"a":',
    "negations": "NOT ",
    "sums": "a=1 OR ",
    "sets": "a IN ('b') AND ",
    "signs": "-",
    "quotes": "'",
    "backslashes": "\\",
    "retry": "%RETRY%",
    "lines": "a=b\n",
    "continued lines": "b" * 250 + "\\\n",
    "dots": "1.",
    "accents": "é",
}
"""Texts that somebody splits, strips, searches, parses or counts; repeated up to a size."""
_NUMBERS: Final = (1_000, 1_000_000, 2**31 - 1, 2**63 - 1, -1, -(2**31))
_MOST_FIELDS: Final = 20
_COMPANIONS: Final = {"exp": {"expType": "SQL92"}, "subscription": {"expressionType": "SQL92"}}
"""What makes an expression of a text."""
_COMMON: Final = 30_000
"""Characters of a text that is long while a list grows: what is copied for each item."""

_LOOSE: Final = {"loose numbers": "1,", "loose texts": "'',", "loose keys": "{1:2},"}
"""Lists of what is no strict JSON, which fastjson reads."""

Build = Callable[[int, int], bytes]
"""(size in bytes, salt) -> a frame. Different salts: names that nobody has seen yet."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """One place of one request, grown in one way."""

    code: int
    name: str
    build: Build

    @property
    def place(self) -> tuple[int, str]:
        """What is grown, however."""
        return self.code, self.name.partition(":")[0].partition(" = ")[0]


@dataclasses.dataclass(frozen=True)
class Recorded:
    """The types that a seed was read as."""

    headers: tuple[type[CommandCustomHeader], ...]
    body: type[JsonBean] | None


def recorded(run: Callable[[], object]) -> Recorded:
    """The headers that `run` decodes, and the first body."""
    headers, beans = dict(command_custom_header._plans), dict(json_bean._plans)
    command_custom_header._plans.clear()
    json_bean._plans.clear()
    try:
        run()
        found = [cls for cls in command_custom_header._plans if "Response" not in cls.__name__]
        bodies = list(json_bean._plans)
    finally:
        command_custom_header._plans.update(headers)
        json_bean._plans.update(beans)
    return Recorded(tuple(found), bodies[0] if bodies else None)


def trials(command: RemotingCommand, read: Recorded, values: Mapping[str, str]) -> Iterator[Trial]:
    """Every place of `command`, grown in every way. values: good ones for what it leaves out, by
    name."""
    optional: dict[str, str] = {}
    typed: dict[str, str] = {}
    for cls in read.headers:
        for name, is_required in _wire_names(cls):
            (typed if is_required else optional)[name] = values.get(name, "1")
    fields = {name: value for name, value in command.ext_fields.items() if name}
    if read.headers and len(fields) > _MOST_FIELDS:
        # One of the seeds that have every field there is.
        known = {**typed, **optional}
        fields = {name: value for name, value in fields.items() if name in known}
    fields = {**typed, **fields}
    yield from _field_trials(command, fields, {**optional, **fields})
    tree = _body_tree(command, read.body, values)
    if tree is not None:
        yield from _tree_trials(command, fields, tree)
        if (other := _by_expression(tree)) != tree:
            yield from _tree_trials(command, fields, other)
        for words, text in _LOOSE.items():
            make = functools.partial(_loose, command, fields, text)
            yield Trial(command.code, f"body: {words}", make)
    yield from _raw_trials(command, fields)


def _field_trials(
    command: RemotingCommand, fields: dict[str, str], grown: dict[str, str]
) -> Iterator[Trial]:
    for name, value in grown.items():
        for companions in ({}, _COMPANIONS.get(name, {})):
            base = {**fields, **companions}
            for filler, pattern in FILLERS.items():
                for start in dict.fromkeys(("", value)):
                    make = functools.partial(_grown_field, command, base, name, start, pattern)
                    words = f"{filler} {'after its value' if start else 'alone'}"
                    yield Trial(command.code, f"{name}: {words} {companions or ''}", make)
            if name not in _COMPANIONS:
                break
        for number in _NUMBERS:
            changed = {**fields, name: str(number)}
            make = functools.partial(_fixed, command, changed, command.body)
            yield Trial(command.code, f"{name} = {number}", make)
    yield Trial(command.code, "fields", functools.partial(_many_fields, command, fields))


def _by_expression(tree: Any) -> Any:
    """The same subscriptions, by properties."""
    if isinstance(tree, dict):
        return {
            name: "SQL92" if name == "expressionType" else _by_expression(value)
            for name, value in tree.items()
        }
    return [_by_expression(item) for item in tree] if isinstance(tree, list) else tree


def _tree_trials(command: RemotingCommand, fields: dict[str, str], tree: Any) -> Iterator[Trial]:
    code = command.code
    for path, value in _paths(tree, ()):
        shown = "$" + "".join(f"[{step!r}]" for step in path)
        if isinstance(value, str):
            for filler, pattern in FILLERS.items():
                for base in {"", value}:
                    grow = functools.partial(_grown_text, base, pattern)
                    make = functools.partial(_grown_tree, command, fields, tree, path, grow)
                    yield Trial(code, f"{shown}: {filler} {'after' if base else 'alone'}", make)
        elif isinstance(value, list):
            for distinct in (False, True):
                items = functools.partial(_items, value, distinct)
                make = functools.partial(_grown_tree, command, fields, tree, path, items)
                words = "distinct items" if distinct else "equal items"
                yield Trial(code, f"{shown}: {words}", make)
                yield from _with_long_texts(command, fields, f"{shown}: {words}", tree, path, items)
        elif isinstance(value, dict):
            make = functools.partial(
                _grown_tree, command, fields, tree, path, functools.partial(_members, value)
            )
            yield Trial(code, f"{shown}: members", make)
            short = functools.partial(_short_members, value)
            make = functools.partial(_grown_tree, command, fields, tree, path, short)
            yield Trial(code, f"{shown}: short members", make)
        elif isinstance(value, int):
            for number in _NUMBERS:
                make = functools.partial(
                    _grown_tree, command, fields, tree, path, functools.partial(_constant, number)
                )
                yield Trial(code, f"{shown} = {number}", make)


def _with_long_texts(
    command: RemotingCommand,
    fields: dict[str, str],
    shown: str,
    tree: Any,
    path: tuple[Any, ...],
    items: Callable[[int, int], Any],
) -> Iterator[Trial]:
    for name in fields if len(fields) <= _MOST_FIELDS else ():
        long = {**fields, name: _long(fields[name])}
        make = functools.partial(_grown_tree, command, long, tree, path, items)
        yield Trial(command.code, f"{shown}, with a long {name}", make)


def _raw_trials(command: RemotingCommand, fields: dict[str, str]) -> Iterator[Trial]:
    code = command.code
    for filler, pattern in FILLERS.items():
        make = functools.partial(_raw, command, fields, pattern.encode())
        yield Trial(code, f"body: {filler}", make)
    yield Trial(code, "body: zeros", functools.partial(_raw, command, fields, bytes(8)))
    if command.body:
        yield Trial(code, "body: repeated", functools.partial(_raw, command, fields, command.body))
        for name in fields if len(fields) <= _MOST_FIELDS else ():
            long = {**fields, name: _long(fields[name])}
            make = functools.partial(_raw, command, long, command.body)
            yield Trial(code, f"body: repeated, with a long {name}", make)
    for name in ("batch", "m"):
        if name in fields:
            yield from _batch_trials(command, {**fields, name: "true"})


def _batch_trials(command: RemotingCommand, fields: dict[str, str]) -> Iterator[Trial]:
    """Bodies of sends: items without a body, with a short one (as many as there may be in 1 MB),
    with a usual one, and with properties that somebody has to look at; as many as there may be in a
    batch, too, since more are refused at once."""
    bodies = {f"{22 + size} bytes": _batch_item(b"x" * size) for size in (0, 12, 100)}
    marked = {text.partition("\x01")[0]: _batch_item(b"", text.encode()) for text in _MARKED}
    for words, item in {**bodies, **marked}.items():
        for name in ("i", "properties", ""):
            if name and (name not in fields or words in marked):
                continue
            long = {**fields, name: _long("")} if name else fields
            long.pop("", None)
            behind = f", with a long {name}" if name else ""
            for most, number in ((MOST_BATCH_MESSAGES, " (as many as may be)"), (None, "")):
                make = functools.partial(_items_of_batch, command, long, item, most)
                yield Trial(command.code, f"batch of {words} each{behind}{number}", make)


_MARKED: Final = (
    "REAL_QID\x011",
    "TRANSACTION_CHECK_TIMES\x01\x02POP_CK\x01a\x02a\x01b",
    "TIMER_OUT_MS\x011\x02TIMER_DELAY_MS\x011",
    "TIMER_DEQUEUE_MS\x011",
    "DELAY\x010",
    "xINNER_\x01a",
    "INNER_NUM\x011",
    "INNER_MULTI_DISPATCH\x01%LMQ%a",
)
"""Properties that are taken out, or mean nothing, or are refused, of a message in a batch."""


def _items_of_batch(
    command: RemotingCommand,
    fields: dict[str, str],
    item: bytes,
    most: int | None,
    size: int,
    _salt: int,
) -> bytes:
    number = size // len(item)
    return _frame(command, fields, item * (number if most is None else min(number, most)))


def _batch_item(body: bytes, properties: bytes = b"") -> bytes:
    return encode_item(0, body, properties)


# -- frames ----------------------------------------------------------------------------------------


def _frame(command: RemotingCommand, fields: dict[str, str], body: bytes) -> bytes:
    grown = RemotingCommand.request(command.code, fields, body)
    grown.version = command.version
    grown.language = command.language
    if command.serialize_type == SerializeType.ROCKETMQ:
        grown.serialize_type = SerializeType.ROCKETMQ
    return encode_command(grown)


def _fixed(
    command: RemotingCommand, fields: dict[str, str], body: bytes, _size: int, _salt: int
) -> bytes:
    return _frame(command, fields, body)


def _grown_field(
    command: RemotingCommand,
    fields: dict[str, str],
    name: str,
    base: str,
    pattern: str,
    size: int,
    salt: int,
) -> bytes:
    return _frame(command, {**fields, name: _grown_text(base, pattern, size, salt)}, command.body)


def _many_fields(command: RemotingCommand, fields: dict[str, str], size: int, salt: int) -> bytes:
    number = min(size // 20, 4000)
    return _frame(command, {**fields, **{f"f{salt}-{n}": "v" for n in range(number)}}, command.body)


def _grown_tree(
    command: RemotingCommand,
    fields: dict[str, str],
    tree: Any,
    path: tuple[Any, ...],
    grow: Callable[[int, int], Any],
    size: int,
    salt: int,
) -> bytes:
    body = json.dumps(_with(tree, path, grow(size, salt)), separators=(",", ":"))
    return _frame(command, fields, body.encode())


def _raw(
    command: RemotingCommand, fields: dict[str, str], pattern: bytes, size: int, _salt: int
) -> bytes:
    return _frame(command, fields, pattern * (size // len(pattern)))


def _loose(
    command: RemotingCommand, fields: dict[str, str], item: str, size: int, _salt: int
) -> bytes:
    return _frame(command, fields, f"{{'a':[{item * (size // len(item))}]}}".encode())


def _grown_text(base: str, pattern: str, size: int, _salt: int) -> str:
    wire = len(json.dumps(pattern, ensure_ascii=False).encode()) - 2
    return base + pattern * max(1, (size - len(base)) // wire)


def _items(value: list[Any], distinct: bool, size: int, salt: int) -> list[Any]:
    item = value[0] if value else "a"
    number = size // (len(json.dumps(item)) + (9 if distinct else 1))
    if not distinct:
        return [item] * number
    return [_renamed(item, f"{salt:x}-{index:x}") for index in range(number)]


def _short_members(value: dict[str, Any], size: int, _salt: int) -> dict[str, Any]:
    return {**value, **{f"{index:x}": 1 for index in range(size // 10)}}


def _members(value: dict[str, Any], size: int, salt: int) -> dict[str, Any]:
    first = next(iter(value.values()), 1)
    number = size // (len(json.dumps(first)) + 14)
    return {**value, **{f"{salt:x}-{index:x}": first for index in range(number)}}


def _constant(value: Any, _size: int, _salt: int) -> Any:
    return value


def _renamed(item: Any, suffix: str) -> Any:
    """`item` with another first text: it usually names the item."""
    if isinstance(item, str):
        return item + suffix
    if isinstance(item, dict):
        for name, value in item.items():
            if isinstance(value, str):
                return {**item, name: value + suffix}
    return item


def _long(value: str) -> str:
    return f"{value}\x02K\x01{'v' * _COMMON}" if value else f"K\x01{'v' * _COMMON}"


# -- bodies ----------------------------------------------------------------------------------------


def _wire_names(cls: type[CommandCustomHeader]) -> list[tuple[str, bool]]:
    """Name and whether it has to be there, of each field."""
    return [
        (
            cls.WIRE_NAMES.get(field.name, camel_case(field.name)),
            field.default is dataclasses.MISSING,
        )
        for field in dataclasses.fields(cls)
    ]


def _body_tree(
    command: RemotingCommand, body: type[JsonBean] | None, values: Mapping[str, str]
) -> Any:
    try:
        seed = json.loads(command.body) if command.body else None
    except (ValueError, RecursionError):
        seed = None
    if body is None:
        return seed if isinstance(seed, dict | list) else None
    return _merged(sample_of(body, values), seed)


def sample_of(hint: Any, values: Mapping[str, str], name: str = "") -> Any:
    """A JSON value for an annotation of a bean: every member, one item of every list and map;
    texts are those of `values` for their attribute's name."""
    if get_origin(hint) in (Union, type(int | None)):
        hint = next(arg for arg in get_args(hint) if arg is not type(None))
    if hint in (Int32, Int64, int):
        return 1
    if hint is bool:
        return False
    if hint is float:
        return 1.5
    if hint is str or hint is Any:
        return values.get(name, "a")
    origin = get_origin(hint)
    if origin is list:
        return [sample_of(get_args(hint)[0], values, name)]
    if origin is dict:
        key, value = get_args(hint)
        shown = "1" if key in (Int32, Int64) else "a"
        if isinstance(key, type) and issubclass(key, JsonBean):
            shown = json.dumps(sample_of(key, values))
        return {shown: sample_of(value, values, name)}
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return next(iter(hint)).value
    hints = get_type_hints(hint, include_extras=True)
    return {
        hint.WIRE_NAMES.get(field.name, camel_case(field.name)): sample_of(
            hints[field.name], values, camel_case(field.name)
        )
        for field in dataclasses.fields(hint)
    }


def _merged(sample: Any, seed: Any) -> Any:
    """`seed`, with what it lacks taken from `sample`."""
    if isinstance(sample, dict) and isinstance(seed, dict):
        names = {**sample, **seed}
        return {name: _merged(sample.get(name), seed.get(name)) for name in names}
    if isinstance(sample, list) and isinstance(seed, list) and seed:
        return [_merged(sample[0] if sample else None, seed[0])]
    return sample if seed is None or seed == [] else seed


def _paths(tree: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield path, tree
    if isinstance(tree, dict):
        for name, value in list(tree.items())[:24]:
            yield from _paths(value, (*path, name))
    elif isinstance(tree, list) and tree:
        yield from _paths(tree[0], (*path, 0))


def _with(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = deepcopy(tree)
    at = changed
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return changed
