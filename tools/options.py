"""The options of a command, declared at its parameters.

A parameter is `name: Annotated[type, "-b --brokerAddr VALUE", "help", …] = default`: its flags,
with what stands for the value in the help where that is not its type's name; its help; then what
else click has to know: a `click.ParamType`, or arguments of `click.Option` as a dict. Without a
default it is required, unless its type has None. Runs once per command, when its module is
imported.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

import click

FLAG: Final = {"is_flag": True}
"""The option takes no value."""
SHOW_DEFAULT: Final = {"show_default": True}
NATURAL: Final = click.IntRange(0)
POSITIVE: Final = click.IntRange(1)

Topic = Annotated[str, "-t --topic", "Topic name."]
SettingKey = Annotated[str, "-k --key", "Setting."]
SettingValue = Annotated[str, "-v --value", "Its new value."]


def options_of(function: Callable[..., Any]) -> list[click.Option]:
    """In the order of the parameters; those that are not annotated so are no options."""
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    return [
        option(parameter.name, hints[parameter.name], parameter.default)
        for parameter in parameters
        if get_origin(hints.get(parameter.name)) is Annotated
    ]


def option(name: str, hint: Any, default: Any = inspect.Parameter.empty) -> click.Option:
    """The option of one parameter."""
    kind, flags, *more = get_args(hint)
    arguments: dict[str, Any] = {"type": kind}
    if isinstance(kind, types.UnionType):
        arguments["type"] = get_args(kind)[0]
    elif default is inspect.Parameter.empty and FLAG not in more:
        arguments["required"] = True
    if default is not inspect.Parameter.empty:
        arguments["default"] = default
    for each in more:
        if isinstance(each, dict):
            arguments |= each
        else:
            arguments["help" if isinstance(each, str) else "type"] = each
    words = flags.split()
    if not words[-1].startswith("-"):
        arguments["metavar"] = words.pop()
    if FLAG in more:
        del arguments["type"]
    return click.Option([*words, name], **arguments)
