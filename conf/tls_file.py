"""The file of TLS settings (tls.config.file), which takes precedence over all other sources.

Runs once at a program's start, after the other settings are loaded: they name the file. As in
RocketMQ it cannot set whether TLS is used, only how: tls.server.mode and tls.enable are ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from conf.config_loader import KeySpace, LoadedSettings, load_settings
from conf.errors import ConfigError
from conf.settings_file import read_settings_file

FILE_KEY: Final = "tls.config.file"
_PASSWORDS: Final = ("tls.server.keyPassword", "tls.client.keyPassword")
_NOT_FOR_THE_FILE: Final = frozenset({"tls.server.mode", "tls.enable", FILE_KEY})


def password_files(sources: Mapping[str, str], secrets: Iterable[str] = ()) -> list[Path]:
    """The settings files that hold a password, or one of `secrets`, which are keys; `sources`: as
    in LoadedSettings."""
    # A source in a file is "path:line".
    places = (sources[key].rpartition(":")[0] for key in (*_PASSWORDS, *secrets) if key in sources)
    return [Path(place) for place in places if place]


def with_tls_file(keys: KeySpace, loaded: LoadedSettings, default_path: str) -> LoadedSettings:
    """`loaded`, overridden by the file's settings; `keys` are those of TLS only.

    The default file may be missing. Raises ConfigError.
    """
    source = loaded.sources.get(FILE_KEY)
    path = Path(loaded.values.get(FILE_KEY, default_path))
    if not path.exists():
        if source is None:
            return loaded
        raise ConfigError(
            [f"{source}: {FILE_KEY} = {path}: no such file; create it or remove the key"]
        )
    settings = read_settings_file(path)
    warnings = [
        f"{setting.source}: {setting.key} has no effect in this file, as in RocketMQ; set it "
        "in the program's own settings file or with -D in JAVA_OPT_EXT"
        for setting in settings
        if setting.key in _NOT_FOR_THE_FILE
    ]
    rest = [setting for setting in settings if setting.key not in _NOT_FOR_THE_FILE]
    found = load_settings(keys, file=rest)
    return LoadedSettings(
        {**loaded.values, **found.values},
        {**loaded.sources, **found.sources},
        (*loaded.warnings, *warnings, *found.warnings),
    )
