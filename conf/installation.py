"""Where this product is installed, which version it is, and what its console scripts do first.

Used by the console scripts of an installed wheel (`mqbroker`, `mqnamesrv`, `mqadmin`,
`mqshutdown`) before their programs run; in a checkout bin/setup-env.sh does the same. Also tells
the broker its version. Reads the environment, setup.cfg and the wheel's metadata; opens nothing
else. Every process of a broker has this module, so each function imports what only it needs.
"""

from __future__ import annotations

import csv
import logging
import sys
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

DISTRIBUTION: Final = "rocketmq-python-broker"
UNKNOWN_VERSION: Final = "unknown"
_RECORDS: Final = f"{DISTRIBUTION.replace('-', '_')}-*.dist-info/RECORD"
"""Where an installed wheel says which files it has. importlib.metadata finds it, too, with a
mail reader and a ZIP reader that every process would keep."""
INSTALL_DIRECTORY: Final = Path(__file__).resolve().parents[1]
"""The checkout, or the site-packages directory that the wheel was installed into. Either has the
shipped settings files in its directory `conf`."""


def software_version(directory: Path = INSTALL_DIRECTORY) -> str:
    """The version of a checkout (its setup.cfg), else of the installed wheel (its metadata);
    UNKNOWN_VERSION, with a warning, where neither can be read."""
    return _checkout_version(directory / "setup.cfg") or _wheel_version(directory)


def _checkout_version(path: Path) -> str | None:
    import configparser

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
    import importlib.metadata

    found = importlib.metadata.distributions(name=DISTRIBUTION, path=[str(directory)])
    for distribution in found:
        return distribution.version
    log.warning("%s: no version in a setup.cfg or in the metadata of a wheel", directory)
    return UNKNOWN_VERSION


def replaced_packages(directory: Path = INSTALL_DIRECTORY) -> str | None:
    """What to tell about packages of the wheel that another distribution has overwritten; None
    where there are none, and in a checkout.

    Our packages have plain names (`store`, `tools`), and pip lets two distributions write the same
    file without a word. The lines of our packages' `__init__.py` in the wheel's RECORD (path,
    sha256=..., size) are compared with what is there.
    """
    for record in directory.glob(_RECORDS):
        for path, digest, _ in csv.reader(record.read_text(encoding="utf-8").splitlines()):
            if path.count("/") == 1 and path.endswith("/__init__.py"):
                file = directory / path
                if not _has_digest(file, digest):
                    return (
                        f"{file} is not the one that was installed: another distribution"
                        f" has a package {path.partition('/')[0]!r}, too; install"
                        f" {DISTRIBUTION} again, into an environment of its own"
                        " (pipx install, or uv tool install)"
                    )
    return None


def _has_digest(path: Path, digest: str) -> bool:
    """digest: `sha256=` and the digest in URL-safe base64 without padding, as in a RECORD."""
    import base64
    import hashlib

    name, _, expected = digest.partition("=")
    try:
        found = hashlib.new(name, path.read_bytes()).digest()
    except OSError:
        return False
    return base64.urlsafe_b64encode(found).rstrip(b"=").decode() == expected


def enter_program(
    program: str, arguments: Sequence[str], environment: MutableMapping[str, str]
) -> None:
    """What bin/setup-env.sh does in a checkout: answers `--version` (as the first argument; ends
    the program), defaults ROCKETMQ_HOME to INSTALL_DIRECTORY, and keeps the working directory off
    the module path of child processes. Ends the program where another distribution has replaced a
    package of ours (`replaced_packages`)."""
    if replaced := replaced_packages():
        sys.exit(f"{program}: {replaced}")
    if arguments[:1] == ["--version"]:
        sys.stdout.write(f"{program} {software_version()}\n")
        sys.exit(0)
    environment["ROCKETMQ_HOME"] = environment.get("ROCKETMQ_HOME") or str(INSTALL_DIRECTORY)
    environment["PYTHONSAFEPATH"] = "1"
