"""Where this product is installed, which version it is, and what its console scripts do first.

Used by the console scripts of an installed wheel (`mqbroker`, `mqnamesrv`, `mqadmin`,
`mqshutdown`) before their programs run; in a checkout bin/setup-env.sh does the same. Also tells
the broker its version. Reads the environment, setup.cfg and the wheel's metadata; opens nothing
else.
"""

from __future__ import annotations

import configparser
import importlib.metadata
import logging
import sys
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

DISTRIBUTION: Final = "rocketmq-python-broker"
UNKNOWN_VERSION: Final = "unknown"
INSTALL_DIRECTORY: Final = Path(__file__).resolve().parents[1]
"""The checkout, or the site-packages directory that the wheel was installed into. Either has the
shipped settings files in its directory `conf`."""


def software_version(directory: Path = INSTALL_DIRECTORY) -> str:
    """The version of a checkout (its setup.cfg), else of the installed wheel (its metadata);
    UNKNOWN_VERSION, with a warning, where neither can be read."""
    return _checkout_version(directory / "setup.cfg") or _wheel_version(directory)


def _checkout_version(path: Path) -> str | None:
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
        metadata = parser["metadata"]
        return metadata["version"] if metadata["name"] == DISTRIBUTION else None
    except FileNotFoundError:
        return None
    except (OSError, KeyError, ValueError, configparser.Error) as error:
        log.warning("%s: cannot read the version: %s", path, error)
        return None


def _wheel_version(directory: Path) -> str:
    found = importlib.metadata.distributions(name=DISTRIBUTION, path=[str(directory)])
    for distribution in found:
        return distribution.version
    log.warning("%s: no version in a setup.cfg or in the metadata of a wheel", directory)
    return UNKNOWN_VERSION


def enter_program(
    program: str, arguments: Sequence[str], environment: MutableMapping[str, str]
) -> None:
    """What bin/setup-env.sh does in a checkout: answers `--version` (as the first argument; ends
    the program), defaults ROCKETMQ_HOME to INSTALL_DIRECTORY, and keeps the working directory off
    the module path of child processes."""
    if arguments[:1] == ["--version"]:
        sys.stdout.write(f"{program} {software_version()}\n")
        sys.exit(0)
    environment["ROCKETMQ_HOME"] = environment.get("ROCKETMQ_HOME") or str(INSTALL_DIRECTORY)
    environment["PYTHONSAFEPATH"] = "1"
