"""RocksDB databases of a store, read without changing a byte, and written anew.

The only module that knows rocksdict (setup.cfg, extra `adopt`), which is imported when a database
is opened: nobody else pays for it. One thread. Reading goes through a directory of symbolic links,
since RocksDB writes its own log into a directory even if it only reads it. Writing serves the way
back: format version 5, no compression, column families flushed one by one in the order named, as
the library's flush covers one (docs/decisions/libraries.md).

Tested by tests/adopt/test_rocks_database.py.
"""

from __future__ import annotations

import contextlib
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from store.errors import StoreError

Entry = tuple[bytes, bytes]
_LEFT_OUT: Final = ("LOG", "LOCK", "OPTIONS-", "rocksdict-config.json")
"""What only a process that has the database open needs, and options: they are ours."""
_MAX_CURRENT: Final = 4096
MAX_VALUE: Final = 64 << 20
_BATCH: Final = 256


def is_database(directory: Path) -> bool:
    """Whether RocksDB keeps something there."""
    try:
        # Queues of topics of such names are directories.
        names = [path.name for path in directory.iterdir() if not path.is_dir()]
    except OSError:
        return False
    return "CURRENT" in names and any(name.startswith("MANIFEST-") for name in names)


class RocksDatabase:
    """See the module. One that is open for reading; use in a `with`."""

    def __init__(self, directory: Path) -> None:
        """Opens it. Raises StoreError: it is damaged, or the library is missing."""
        self.directory: Final = directory
        self._stack: Final = contextlib.ExitStack()
        library = _library()
        with contextlib.ExitStack() as undo:
            links = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="mqadopt-")))
            _link_files(directory, links)
            try:
                self.families: list[str] = library.Rdict.list_cf(str(links), _options(library))
                self._database: Any = library.Rdict(
                    str(links),
                    _options(library),
                    column_families={name: _options(library) for name in self.families},
                    access_type=library.AccessType.read_only(),
                )
            except Exception as error:
                raise self._damaged(error) from error
            undo.callback(self._database.close)
            self._stack.push(undo.pop_all())

    def entries(self, family: str) -> Iterator[Entry]:
        """All of a column family, in the order of the keys; none if there is no such family. Raises
        StoreError."""
        if family not in self.families:
            return
        table, key = self._database.get_column_family(family), None
        try:
            for key, value in table.items():
                if len(value) > MAX_VALUE:
                    raise StoreError(
                        f"{self.directory}: a value of {len(value)} bytes in {family!a}: RocketMQ "
                        f"writes none above {MAX_VALUE}; this is not its database"
                    )
                yield key, value
            _check_end(table, key)
        except StoreError:
            raise
        except Exception as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> StoreError:
        text = " ".join(str(error).split())[:300]
        return StoreError(
            f"{self.directory}: RocksDB cannot read it: {text}; start the Java broker on a copy, "
            "which repairs what it can, stop it, and name that copy"
        )

    def close(self) -> None:
        """Idempotent."""
        self._stack.close()

    def __enter__(self) -> RocksDatabase:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _check_end(table: Any, last: bytes | None) -> None:
    """Raises what the library's iterator keeps to itself: it ends at a damaged block as at the end
    of the table."""
    place = table.iter()
    if last is None:
        place.seek_to_first()
    else:
        place.seek(last)
        place.next()
    place.status()


def write_database(directory: Path, families: dict[str, Iterable[Entry]]) -> None:
    """A new database, durable when it returns; the families are flushed in the order named, so that
    what refers to others comes last. Raises StoreError, OSError."""
    library = _library()
    without_log = library.WriteOptions()
    without_log.disable_wal = True
    directory.mkdir(parents=True)
    database = library.Rdict(
        str(directory),
        _options(library, creates=True),
        column_families={name: _options(library) for name in {"default", *families}},
    )
    try:
        handles = {name: database.get_column_family(name) for name in families}
        for name, entries in families.items():
            # Nothing counts before the flush: a log of what is written would only double it.
            handles[name].set_write_options(without_log)
            for key, value in entries:
                _try(directory, handles[name].put, key, value)
            _try(directory, handles[name].flush, True)
        handles.clear()
    finally:
        database.close()
    for name in ("rocksdict-config.json",):
        (directory / name).unlink(missing_ok=True)


def _try(directory: Path, write: Callable[..., None], *arguments: object) -> None:
    try:
        write(*arguments)
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise StoreError(
            f"{directory}: RocksDB cannot write it: {text}; the same command goes on then"
        ) from error


def _library() -> ModuleType:
    try:
        import rocksdict
    except ImportError as error:
        raise StoreError(
            "this directory has RocksDB databases, and rocksdict, which reads them, is not "
            "installed: use bin/mqadopt of a checkout, which installs it, or "
            "`pip install 'rocketmq-python-broker[adopt]'`"
        ) from error
    library: ModuleType = rocksdict
    return library


def _options(library: ModuleType, *, creates: bool = False) -> Any:
    """format_version 5: RocksDB 8.4, in Java's broker, cannot read the library's default."""
    options = library.Options(raw_mode=True)
    table = library.BlockBasedOptions()
    table.set_format_version(5)
    options.set_block_based_table_factory(table)
    options.set_compression_type(library.DBCompressionType.none())
    # What a kill cut off at the end of a log is none of its writer's promises; the default takes
    # any damage for that.
    options.set_wal_recovery_mode(library.DBRecoveryMode.tolerate_corrupted_tail_records())
    options.create_if_missing(creates)
    options.create_missing_column_families(creates)
    return options


def _link_files(directory: Path, links: Path) -> None:
    for path in sorted(directory.iterdir()):
        if path.name.startswith(_LEFT_OUT):
            continue
        kind = path.lstat().st_mode
        if stat.S_ISDIR(kind):
            continue  # Java's queues beside the database, and lost+found
        if not stat.S_ISREG(kind):
            raise StoreError(
                f"{path}: not a plain file; RocksDB makes no others: remove it if it is not the "
                "broker's, or name a copy in which it is a file"
            )
        if path.name == "CURRENT" and path.stat().st_size > _MAX_CURRENT:
            raise StoreError(f"{path}: {path.stat().st_size} bytes: not RocksDB's; name a copy")
        (links / path.name).symlink_to(path.absolute())
