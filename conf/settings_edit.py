"""Changes a few keys of a settings file and preserves the rest: comments, order, lines.

The edited text (properties or YAML) is parsed again; if it does not have exactly the wanted values
(YAML in flow style, for example), the edit is refused. No state; the caller ensures that a file has
one writer at a time. Knows no key.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from conf.atomic_file import write_atomic
from conf.errors import ConfigError
from conf.properties import ENCODING, dump_properties, parse_properties
from conf.setting import Setting
from conf.settings_file import YAML_SUFFIXES, parse_yaml


def save_changes(path: Path, changes: Mapping[str, str]) -> None:
    """Write `changes` to the settings file; its old content is kept in `<path>.bak`.

    The file keeps its permission bits; a missing file is created. Raises OSError or ConfigError,
    and leaves the file unchanged then.
    """
    is_yaml = path.suffix in YAML_SUFFIXES
    encoding = "utf-8" if is_yaml else ENCODING
    mode = None
    try:
        text = path.read_bytes().decode(encoding)
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        text = ""
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: not {encoding} text"]) from error
    edited = (edit_yaml if is_yaml else edit_properties)(text, changes)
    write_atomic(path, edited.encode(encoding), backup=True, mode=mode)


def edit_properties(text: str, changes: Mapping[str, str]) -> str:
    """Properties text with `changes` applied; new keys are appended. Raises ConfigError."""
    import javaproperties

    before = parse_properties(text, "settings")
    missing = dict(changes)
    pieces: list[str] = []
    for element in javaproperties.parse(text):
        if isinstance(element, javaproperties.KeyValue) and element.key in changes:
            missing.pop(element.key, None)
            pieces.append(dump_properties({element.key: changes[element.key]}))
        else:
            pieces.append(element.source)
    edited = _with_newline("".join(pieces), missing) + dump_properties(missing)
    _check(before, parse_properties(edited, "settings"), changes)
    return edited


def edit_yaml(text: str, changes: Mapping[str, str]) -> str:
    """YAML text with `changes` (plain words and numbers) applied. Raises ConfigError."""
    before = parse_yaml(text, "settings")
    missing = dict(changes)
    lines = text.splitlines(keepends=True)
    for setting in before:
        if setting.key in changes:
            value = missing.pop(setting.key)
            lines[_line(setting) - 1] = f"{setting.key}: {value}\n"
    added = "".join(f"{key}: {value}\n" for key, value in missing.items())
    edited = _with_newline("".join(lines), missing) + added
    _check(before, parse_yaml(edited, "settings"), changes)
    return edited


def _line(setting: Setting) -> int:
    return int(setting.source.rpartition(":")[2])


def _with_newline(text: str, missing: Mapping[str, str]) -> str:
    """`text`, terminated by a newline if lines are to follow."""
    return text + "\n" if missing and text and not text.endswith(("\n", "\r")) else text


def _check(before: Sequence[Setting], after: Sequence[Setting], changes: Mapping[str, str]) -> None:
    wanted = {setting.key: setting.text for setting in before}
    wanted.update((key, value.strip()) for key, value in changes.items())
    if {setting.key: setting.text for setting in after} != wanted:
        raise ConfigError(
            ["the settings file has a form that cannot be edited automatically; edit it by hand"]
        )
