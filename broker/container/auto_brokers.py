"""What --auto starts: as many masters as there are pairs of cores, one cluster, fixed places.

autoBrokerCount says another number. Runs once in the container's start. The brokers are ordinary
ones with a settings file each, in autoBrokerDirectory. A file that is there is taken as it is, so
that what the operator changes stays, and a host with fewer cores than before still starts every
broker that has messages. A link counts as a file that is there, too: if it leads to a disk that is
not mounted, the start fails.

    broker   file              listenPort  HA     VIP    metricsPort  storePathRootDir
    first    broker-a.conf     10911       10912  10909  5557         broker-a/
    second   broker-b.conf     10921       10922  10919  5567         broker-b/
    …        …                 + 10 each
"""

from __future__ import annotations

import os
import string
from itertools import product
from pathlib import Path
from typing import Final

from conf.atomic_file import write_atomic
from conf.properties import ENCODING, dump_properties

FIRST_PORT: Final = 10911
PORT_STEP: Final = 10
_HEAD: Final = "# Written by mqbrokercontainer --auto, which never changes it again; you may.\n"


def _all_names() -> tuple[str, ...]:
    letters = string.ascii_lowercase
    return tuple(f"broker-{''.join(each)}" for n in (1, 2) for each in product(letters, repeat=n))


NAMES: Final = _all_names()
"""broker-a … broker-z, broker-aa … broker-zz: names of --auto, in order."""


def prepare_auto_brokers(directory: Path, count: int) -> list[Path]:
    """The settings files of the first `count` names, and of all others whose file is there; those
    that are missing are written. Raises OSError."""
    files = []
    for number, name in enumerate(NAMES):
        path = directory / f"{name}.conf"
        is_there = os.path.lexists(path)
        if not is_there and number < count:
            write_atomic(path, _settings_text(directory, number, name).encode(ENCODING))
        if is_there or number < count:
            files.append(path)
    return files


def _settings_text(directory: Path, number: int, name: str) -> str:
    return _HEAD + dump_properties(
        {
            "brokerClusterName": "DefaultCluster",
            "brokerName": name,
            "brokerId": "0",
            "brokerRole": "ASYNC_MASTER",
            "listenPort": str(FIRST_PORT + number * PORT_STEP),
            "storePathRootDir": str(directory / name),
        }
    )
