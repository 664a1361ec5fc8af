"""`python -m broker.failover.adopt_log -c SETTINGS`: a list of epochs for a log that has none.

For the operator, while the broker is stopped. A list of epochs says which master wrote what;
without one, as in a store from before controller mode, nobody knows whose bytes a log holds, and a
broker in controller mode does not start on it. The list that is written here says that all of this
log is of epoch 0, which no controller gives: what the first elected master writes begins epoch 1.
So it is for ONE log of a group, the one that the group shall go on with; the others start empty,
and get all of it from there. Nothing else is changed. Exit 0: written; 1: refused, nothing was
written.

Tested by tests/broker/failover/test_adopt_log.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from broker.failover.member_files import MemberFiles
from broker.settings.startup_options import StartupOptions
from conf.atomic_file import backup_path
from conf.errors import ConfigError
from conf.settings_file import read_settings_file
from ha.epochs import EpochList, epoch_list
from store.errors import StoreError
from store.mapped_file_queue import list_store_files
from store.store_lock import StoreLock

WRITTEN: Final = 0
REFUSED: Final = 1
_BEFORE_ALL: Final = 0
"""Controllers begin at epoch 1."""


class AdoptionRefusedError(Exception):
    """This log gets no list; the text says why."""


def adopt(options: StartupOptions) -> str:
    """Write the list; what was done, for people. Raises AdoptionRefusedError, StoreError,
    OSError."""
    store, mode = options.store, options.controller_mode
    path = mode.epoch_file(store.root)
    for found in (path, backup_path(path)):
        if found.exists():
            raise AdoptionRefusedError(f"{found}: there is a list already: nothing was written")
    if not store.root.is_dir():
        raise AdoptionRefusedError(f"{store.root}: there is no store")
    with StoreLock(store.root):
        files = list_store_files(store.log_directories)
        if not files:
            raise AdoptionRefusedError(
                f"{store.root}: its log is empty, and needs no list: start the broker"
            )
        begin = files[0].start_offset
        _write(options, path, epoch_list([(_BEFORE_ALL, begin)]))
    return (
        f"{path}: written. The log from {begin} on is of epoch {_BEFORE_ALL}: start this broker "
        "first, and every other one of its group with an empty store"
    )


def _write(options: StartupOptions, path: Path, epochs: EpochList) -> None:
    identity = options.controller_mode.identity_file(options.store.root)
    MemberFiles(identity, path).write_epochs(epochs)


def main(arguments: list[str] | None = None) -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m broker.failover.adopt_log",
        description="Gives the log of a stopped broker its first list of epochs: for the one log "
        "that a group in controller mode shall go on with (docs/failover.md).",
    )
    parser.add_argument("-c", "--configFile", type=Path, required=True, help="as of bin/mqbroker")
    path = parser.parse_args(arguments).configFile
    try:
        settings = {each.key: each.text for each in read_settings_file(path)}
        done = adopt(StartupOptions.from_settings(settings))
    except (AdoptionRefusedError, ConfigError, StoreError, OSError) as error:
        sys.stdout.write(f"{error}\n")
        return REFUSED
    sys.stdout.write(f"{done}\n")
    return WRITTEN


if __name__ == "__main__":
    sys.exit(main())
