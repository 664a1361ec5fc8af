"""What the audit of changes tells of a request: its fields and its body, without secrets, cut.

Pure, any thread: nothing costs more than the size of the request. What a line may not have is
decided here alone: values of keys that are secrets by their names (conf/secret_names.py), and
whatever is longer than a name may be.

Tested by tests/broker/admin/test_admin_audit.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from broker.acl.access_table import ACCESS_TABLE, Who
from broker.admin.admin_audit_files import LINE_LIMIT
from conf.errors import ConfigError
from conf.properties import parse_properties
from conf.secret_names import HIDDEN, is_secret_name, without_secret
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.signature import ACCESS_KEY, SIGNATURE

_BODY_LIMIT: Final = 256 << 10
"""Of a longer body only its size is told."""
_PROPERTIES_LIMIT: Final = 16 << 10
"""The same of a body of settings, which costs more to read."""
_TEXT: Final = 300
_ITEMS: Final = 40
_DEPTH: Final = 5
_SMALLER: Final = ((_TEXT, _ITEMS), (100, 10), (40, 4))
"""(characters of a text, items of a list or object), tried until the line is short enough."""
_NOT_TOLD: Final = frozenset({ACCESS_KEY, SIGNATURE, "SecurityToken"})
_PROPERTIES: Final = frozenset(
    {RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG}
)
_PLAIN: Final = frozenset({RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG})
"""Whose body is a name."""

_ONLY_LOOKS: Final[Mapping[int, Callable[[Mapping[str, str]], bool]]] = {
    RequestCode.VERIFY_LOG: lambda fields: fields.get("action") == "status",
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: lambda fields: "readable" not in fields,
}
"""Codes that change something or not, by their fields."""

AUDITED: Final = frozenset(
    int(code) for code, row in ACCESS_TABLE.items() if row.who is Who.ADMIN and row.changes_state
)
"""The one rule of what is audited: requests of operators that change state, as the access table
has them. Messages, clients and brokers of the group change state, too, and are not operators."""


def is_audited(request: RemotingCommand) -> bool:
    """Whether this request has a line."""
    if request.code not in AUDITED:
        return False
    looks = _ONLY_LOOKS.get(request.code)
    return looks is None or not looks(request.ext_fields)


def told_of(request: RemotingCommand) -> dict[str, Any]:
    """What the request says, without secrets; not cut yet, except for a long body."""
    told: dict[str, Any] = {
        name: _value(name, value)
        for name, value in request.ext_fields.items()
        if name not in _NOT_TOLD
    }
    if request.body:
        told["body"] = _body(request.code, bytes(request.body[: _BODY_LIMIT + 1]))
        if told["body"] is None:
            told["body"] = f"{len(request.body)} bytes"
    return told


def cut_texts(value: Any, smaller: int = 0, depth: int = _DEPTH) -> Any:
    """`value` with at most so many characters and items; smaller: index of _SMALLER."""
    text, items = _SMALLER[smaller]
    if isinstance(value, str):
        # Half a surrogate pair, which JSON may say, is no UTF-8.
        shown = value[:text].encode("utf-8", "replace").decode()
        return shown if len(value) <= text else f"{shown}… ({len(value)} characters)"
    if isinstance(value, list | dict) and not depth:
        return "…"
    if isinstance(value, list):
        cut = [cut_texts(each, smaller, depth - 1) for each in value[:items]]
        return cut if len(value) <= items else [*cut, f"… ({len(value)} in all)"]
    if isinstance(value, dict):
        names = list(value)[:items]
        some = {
            cut_texts(str(name), smaller): cut_texts(value[name], smaller, depth - 1)
            for name in names
        }
        return some if len(value) <= items else {**some, "…": f"{len(value)} in all"}
    return value


def short_line(
    fits: Callable[[dict[str, Any]], bytes], what: dict[str, Any], limit: int = LINE_LIMIT
) -> bytes:
    """The line that `fits` makes of `what`, cut until it is no longer than `limit`."""
    for smaller in range(len(_SMALLER)):
        line = fits(cut_texts(what, smaller))
        if len(line) <= limit:
            return line
    return fits({"…": f"{len(what)} in all"})


def _value(name: str, value: Any) -> Any:
    """`accessKey` names the account that is changed (50, 51); elsewhere it is half of a secret."""
    return HIDDEN if value and name != "accessKey" and is_secret_name(name) else value


def _body(code: int, body: bytes) -> Any:
    """None: only its size is told."""
    if len(body) > _BODY_LIMIT:
        return None
    if code in _PROPERTIES:
        return _properties(body.decode("utf-8", "replace"))
    if code in _PLAIN:
        return body.decode("utf-8", "replace")
    try:
        return _without_secrets(msgspec.json.decode(body), _DEPTH)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _properties(text: str) -> dict[str, str] | None:
    """As whoever applies them reads them: with escapes, and over several lines. A value that speaks
    of a secret is hidden, too: some are JSON with a password inside."""
    if len(text) > _PROPERTIES_LIMIT:
        return None
    found: dict[str, str] = {}
    try:
        for setting in parse_properties(text, ""):
            key, value = setting.key, setting.text
            found[key] = without_secret(f"{key} {value}", value)
    except ConfigError:
        return None
    return found


def _without_secrets(value: Any, depth: int) -> Any:
    if not depth:
        return "…" if isinstance(value, list | dict) else value
    if isinstance(value, dict):
        return {
            name: _without_secrets(_value(name, each), depth - 1) for name, each in value.items()
        }
    if isinstance(value, list):
        return [_without_secrets(each, depth - 1) for each in value]
    return value
