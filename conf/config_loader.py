"""Fills settings dataclasses from one flat key space.

Later sources take precedence: class default, the program's default, -D options of JAVA_OPT
and JAVA_OPT_EXT, environment, file, command line; then the file of TLS settings
(conf/tls_file.py). A key that two classes declare sets both. An unknown key stops the start, with
the nearest known key in the message; ignored keys of RocketMQ cause one warning. Runs at a
process's start and when an admin request changes a setting; knows keys and types, not what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from conf.config_fields import FieldSpec, field_specs, value_text
from conf.errors import ConfigError
from conf.ignored_keys import ALIASES, REASONS, REFUSED
from conf.java_options import system_properties, tls_options
from conf.setting import Setting

ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True, slots=True)
class KeySpace:
    """The keys that a program accepts: those of its settings classes, and those it ignores."""

    classes: tuple[type, ...]
    ignored: frozenset[str] = frozenset()

    def specs(self, key: str) -> list[FieldSpec]:
        """The fields that `key` sets; empty if no class declares it."""
        return [spec for cls in self.classes for spec in field_specs(cls) if spec.key == key]

    def known_keys(self) -> set[str]:
        """Every key that does not stop the start."""
        declared = {spec.key for cls in self.classes for spec in field_specs(cls)}
        aliases = {alias for alias, key in ALIASES.items() if key in declared}
        return declared | aliases | self.ignored


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Checked settings: `values` by key (text), the source of each, and warnings."""

    values: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def load_settings(
    keys: KeySpace,
    *,
    defaults: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Sequence[Setting] = (),
    command_line: Sequence[Setting] = (),
) -> LoadedSettings:
    """Merges the sources and checks every value. Raises ConfigError with all problems found."""
    problems: list[str] = []
    ignored: list[Setting] = []
    values: dict[str, str] = {}
    sources: dict[str, str] = {}
    layers = (
        [Setting(key, text, "program default") for key, text in (defaults or {}).items()],
        tls_options(environment or {}),
        [
            setting
            for setting in system_properties(environment or {})
            if keys.specs(ALIASES.get(setting.key, setting.key))
        ],
        _from_environment(keys, environment or {}),
        file,
        command_line,
    )
    for layer in layers:
        seen: dict[str, Setting] = {}
        for setting in layer:
            key = ALIASES.get(setting.key, setting.key)
            problem = _check(keys, key, setting) or _contradiction(key, setting, seen)
            if problem:
                problems.append(problem)
            elif keys.specs(key):
                values[key], sources[key] = setting.text, setting.source
            else:
                ignored.append(setting)
    if problems:
        raise ConfigError(problems)
    return LoadedSettings(values, sources, _ignored_warning(ignored))


def build(cls: type[ConfigT], values: Mapping[str, str]) -> ConfigT:
    """An instance of `cls` from texts by key; defaults for the rest. Raises ConfigError."""
    arguments: dict[str, Any] = {}
    for spec in field_specs(cls):
        if spec.key in values:
            arguments[spec.name] = parse_value(spec, Setting(spec.key, values[spec.key], "setting"))
    return cls(**arguments)


def update(config: ConfigT, changes: Mapping[str, str], source: str) -> ConfigT:
    """A copy of `config` with the changes of keys that it declares; other keys are ignored.

    `source` names the requester ("request 25 from 10.0.0.1:4711"). Raises ConfigError.
    """
    values: dict[str, str] = describe(config)
    for spec in field_specs(type(config)):
        if spec.key in changes:
            parse_value(spec, Setting(spec.key, changes[spec.key], source))
            values[spec.key] = changes[spec.key]
    return build(type(config), values)


def parse_value(spec: FieldSpec, setting: Setting) -> Any:
    """The value of one setting. Raises ConfigError: file, line, key and what is expected."""
    try:
        return spec.parse(setting.text)
    except ValueError:
        raise ConfigError([_bad_value(spec, setting)]) from None


def require_readable(
    sources: Mapping[str, str], texts: Mapping[str, str], read: Callable[[str], object]
) -> None:
    """Check what would otherwise only fail once ports are open, or files are created.

    texts: keys with the texts that `read` must take, which raises ValueError. Raises ConfigError,
    which names the place of the first wrong one.
    """
    for key, text in texts.items():
        try:
            read(text)
        except ValueError as error:
            raise ConfigError([with_source(sources.get(key), f"{key}: {error}")]) from error


def with_source(source: str | None, problem: object) -> str:
    """A problem after the place of its setting, if that was set."""
    return f"{source}: {problem}" if source else str(problem)


def describe(*configs: object, important_only: bool = False) -> dict[str, str]:
    """Key to text of all fields (or only the important ones), in declaration order."""
    return {
        spec.key: value_text(getattr(config, spec.name))
        for config in configs
        for spec in field_specs(type(config))
        if spec.important or not important_only
    }


def _from_environment(keys: KeySpace, environment: Mapping[str, str]) -> list[Setting]:
    named = {spec.env: spec.key for cls in keys.classes for spec in field_specs(cls) if spec.env}
    return [
        Setting(key, environment[name], f"environment variable {name}")
        for name, key in named.items()
        if environment.get(name)
    ]


def _check(keys: KeySpace, key: str, setting: Setting) -> str | None:
    specs = keys.specs(key)
    for spec in specs:
        try:
            spec.parse(setting.text)
        except ValueError:
            return _bad_value(spec, setting)
    if specs:
        return None
    if key not in keys.ignored:
        return _unknown(keys, setting)
    refusal = REFUSED.get(key)
    if refusal and setting.text.lower() not in refusal.harmless:
        return f"{setting.source}: {setting.key} = {setting.text}: {refusal.reason}"
    return None


def _contradiction(key: str, setting: Setting, seen: dict[str, Setting]) -> str | None:
    """A key and its alias in one source, with different values."""
    earlier = seen.setdefault(key, setting)
    if earlier.text == setting.text:
        return None
    return (
        f"{setting.source}: {setting.key} = {setting.text} contradicts"
        f" {earlier.key} = {earlier.text} at {earlier.source}; keep one of the two"
    )


def _bad_value(spec: FieldSpec, setting: Setting) -> str:
    shown = f"{setting.key} = {setting.text}"
    return f"{setting.source}: {shown}: expected {spec.expectation()}"


def _unknown(keys: KeySpace, setting: Setting) -> str:
    nearest = _nearest(setting.key, keys.known_keys())
    advice = f"did you mean {nearest!r}?" if nearest else "-p prints every key"
    return f"{setting.source}: unknown key {setting.key!r}; {advice}"


def _nearest(key: str, known: Iterable[str]) -> str | None:
    import difflib

    by_lower = {candidate.lower(): candidate for candidate in sorted(known)}
    matches = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else None


def _ignored_warning(ignored: list[Setting]) -> tuple[str, ...]:
    """One line for all, and one each for those of which there is more to say."""
    own = tuple(
        f"{setting.source}: {setting.key} is read, and has no effect here: {REASONS[setting.key]}"
        for setting in ignored
        if setting.key in REASONS
    )
    places = [f"{s.key} ({s.source})" for s in ignored if s.key not in REASONS]
    if not places:
        return own
    return f"these settings of RocketMQ have no effect in this broker: {', '.join(places)}", *own
