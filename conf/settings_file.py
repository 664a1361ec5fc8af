"""Reads a settings file of either format into a list of settings with their line numbers.

`*.yaml` and `*.yml` are YAML (UTF-8, one flat mapping of scalars, safe loading only; the text of
each value is kept as written, so `deleteWhen: 04` stays 04); all others are Java properties.
Used at a start and when an admin request saves a change; knows no key.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from conf.errors import ConfigError
from conf.properties import ENCODING, parse_properties
from conf.setting import Setting

if TYPE_CHECKING:
    import yaml

YAML_SUFFIXES = (".yaml", ".yml")
MAX_BYTES: Final = 1 << 20
"""Of a settings file: all settings with their comments have a tenth of it. A broker container reads
files of others' choice."""


def read_settings_file(path: Path) -> list[Setting]:
    """All settings of the file. Raises ConfigError: unreadable, bad syntax, duplicate key."""
    is_yaml = path.suffix in YAML_SUFFIXES
    text = _read_text(path, "utf-8" if is_yaml else ENCODING)
    settings = parse_yaml(text, str(path)) if is_yaml else parse_properties(text, str(path))
    _refuse_duplicates(settings)
    return settings


def parse_yaml(text: str, name: str) -> list[Setting]:
    """The settings of YAML `text`. Raises ConfigError unless it is a flat mapping of scalars."""
    # Here: most settings files are properties, and what is imported stays in every process.
    import yaml

    from conf.yaml_nodes import compose_yaml

    root = compose_yaml(text, name)
    if root is None:
        return []
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError([f"{name}:1: expected lines of the form 'key: value'"])
    return [_scalar_setting(key, value, name) for key, value in root.value]


def _scalar_setting(key: yaml.Node, value: yaml.Node, name: str) -> Setting:
    import yaml

    from conf.yaml_nodes import scalar_text

    source = f"{name}:{key.start_mark.line + 1}"
    if not isinstance(key, yaml.ScalarNode) or not isinstance(value, yaml.ScalarNode):
        shown = key.value if isinstance(key, yaml.ScalarNode) else "?"
        raise ConfigError([f"{source}: {shown}: expected one plain value, not a list or mapping"])
    return Setting(str(key.value), scalar_text(value), source)


def _read_text(path: Path, encoding: str) -> str:
    try:
        data = _read_bounded(path)
        if len(data) > MAX_BYTES:
            raise ConfigError([f"{path}: over {MAX_BYTES} bytes: this is no settings file"])
        return data.decode(encoding)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError([f"{path}: cannot read the settings file: {reason}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: not {encoding} text (byte {error.start})"]) from error


def _read_bounded(path: Path) -> bytes:
    """At most one byte more than MAX_BYTES. Some files of /proc never end, or wait like a pipe but
    are plain ones: their error comes at once. Pipes are waited for (`-c /dev/stdin`)."""
    waits = 0 if not path.is_file() else os.O_NONBLOCK
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | waits)
    try:
        data = b""
        while len(data) <= MAX_BYTES:
            part = os.read(fd, MAX_BYTES + 1 - len(data))
            if not part:
                break
            data += part
        return data
    finally:
        os.close(fd)


def _refuse_duplicates(settings: list[Setting]) -> None:
    first: dict[str, Setting] = {}
    problems = []
    for setting in settings:
        earlier = first.setdefault(setting.key, setting)
        if earlier is not setting:
            problems.append(
                f"{setting.source}: key {setting.key!r} is already set at {earlier.source};"
                " keep one of the two"
            )
    if problems:
        raise ConfigError(problems)
