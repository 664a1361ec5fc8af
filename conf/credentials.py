"""Credentials: who this program is for a broker with aclEnable, from conf/tools.yml.

Read once, at a start: by mqadmin, and by a broker that asks other brokers. Knows nothing of what
is done with them. The file is the original's: accessKey and secretKey, as YAML.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from conf.settings_file import read_settings_file

TOOLS_FILE: Final = "tools.yml"


@dataclass(frozen=True, slots=True)
class Credentials:
    """One account."""

    access_key: str
    secret_key: str = field(repr=False)


def find_credentials(conf_directory: Path) -> Credentials | None:
    """Those in tools.yml; None when the file, or one of the two keys, is not there. Raises
    ConfigError for a file that cannot be read."""
    path = conf_directory / TOOLS_FILE
    if not path.exists():
        return None
    values = {setting.key: setting.text for setting in read_settings_file(path)}
    access_key, secret_key = values.get("accessKey"), values.get("secretKey")
    return Credentials(access_key, secret_key) if access_key and secret_key else None
