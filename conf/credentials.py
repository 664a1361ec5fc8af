"""Credentials: the account that this program uses with brokers with aclEnable (conf/tools.yml).

Read once, at the start of mqadmin and of a broker, which sends requests to other brokers. Does not
know how they are used. The file is RocketMQ's: accessKey and secretKey, as YAML.
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
    """Those of tools.yml; None if the file or one of the two keys is missing. Raises ConfigError
    for an unreadable file."""
    path = conf_directory / TOOLS_FILE
    if not path.exists():
        return None
    values = {setting.key: setting.text for setting in read_settings_file(path)}
    access_key, secret_key = values.get("accessKey"), values.get("secretKey")
    return Credentials(access_key, secret_key) if access_key and secret_key else None
