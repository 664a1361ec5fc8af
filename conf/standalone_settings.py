"""What the start-ups of name server and controller read alike: command line, file, TLS file.

Runs once at a program's start, before anything is opened. Order, messages and exit codes are
RocketMQ's: -p prints the settings also without ROCKETMQ_HOME. Knows no program.

Tested by tests/namesrv/test_namesrv_startup.py, tests/controller/test_controller_startup.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

from conf.command_line import (
    CONFIG_FILE,
    PRINT_ALL,
    Option,
    cannot_start,
    config_file,
    parse_command_line,
    require_home,
    unused_variables,
)
from conf.config_loader import KeySpace, LoadedSettings, build, describe, load_settings
from conf.errors import EXIT_OK, ConfigError, StartupExitError
from conf.file_permissions import exposure_warnings
from conf.setting import Setting
from conf.tls_file import password_files, with_tls_file

ConfigT = TypeVar("ConfigT")


class Readable(NamedTuple):
    """What a program can be told."""

    program: str
    options: tuple[Option, ...]
    find_keys: Callable[[Sequence[Setting]], KeySpace]
    """Its keys, of which some may depend on what its file says."""
    defaults: Mapping[str, str]
    """The program's own."""
    tls_keys: KeySpace
    tls_file: str
    """Where the TLS file is, unless a setting says so."""


@dataclass(frozen=True, slots=True)
class StandaloneSettings:
    """What it was told, checked key by key."""

    given: Mapping[str, str]
    """Options of the command line by long name."""
    path: Path | None
    """The -c file."""
    loaded: LoadedSettings
    environment: Mapping[str, str]

    @property
    def sources(self) -> Mapping[str, str]:
        """The source of each setting."""
        return self.loaded.sources

    @property
    def messages(self) -> tuple[str, ...]:
        """For stdout, before the boot line."""
        return (
            (f"load config properties file OK, {self.given[CONFIG_FILE.long]}",)
            if self.path
            else ()
        )

    def build(self, cls: type[ConfigT]) -> ConfigT:
        """An instance of a settings class. Raises ConfigError."""
        return build(cls, self.loaded.values)

    def end_or_go_on(self, home: str | None, *shown: object) -> None:
        """Raises StartupExitError: for -p with the settings in `shown`, else without an install
        directory."""
        if PRINT_ALL.long in self.given:
            lines = [f"{key}={text}" for key, text in describe(*shown).items()]
            raise StartupExitError(EXIT_OK, "\n".join([*self.messages, *lines]))
        require_home(home)

    def warnings(self, own: Iterable[str], secret_files: Iterable[Path]) -> tuple[str, ...]:
        """For the log: about the environment and the settings, the program's own, and files with
        passwords and keys that others may read."""
        return (
            *unused_variables(self.environment),
            *self.loaded.warnings,
            *own,
            *exposure_warnings([*password_files(self.sources), *secret_files]),
        )


def read_settings(
    readable: Readable, arguments: Sequence[str], environment: Mapping[str, str]
) -> StandaloneSettings:
    """Reads command line, environment and files. Raises StartupExitError, also for -h."""
    given = parse_command_line(readable.program, arguments, readable.options)
    path, file = config_file(given)
    try:
        keys = readable.find_keys(file)
        loaded = load_settings(keys, defaults=readable.defaults, environment=environment, file=file)
        loaded = with_tls_file(readable.tls_keys, loaded, readable.tls_file)
    except ConfigError as error:
        raise cannot_start(error) from error
    return StandaloneSettings(given, path, loaded, environment)
