"""Re-synchronisation: put a slave's store back to where it agrees with its master.

Process `ha` finds out that slave and master do not belong together and writes a request; the
files may only change while nobody has them open, so the broker is started again and the `store`
process performs the request before recovery. Nothing is deleted: what goes out of the store goes
into a backup directory. Every step may be the last one of a process: performing again goes on
where it ended, and the request itself goes last. It knows no master and no decision.

    <root>/resync.json             what is to be done (ResyncRequest as JSON), until it is done
    <root>/resync.json.done        afterwards: the tables in config/ may be ahead of the log
    <root>/resync.json.refused     a request that does not fit the store, and why
    <root>/backup-<UTC>-<hex>/     what was taken out; a directory of the store that is elsewhere
                                   has its backup beside it, a mount point has it inside
        resync.json                the request that made it
        commitlog/<20 digits>                     a whole file
        commitlog/<20 digits>.from-<phy_offset>   the bytes of a file from that offset on

start_over moves commit log, consumequeue, index, timers, compaction logs and checkpoint aside: the
store is as new.
truncate ends the log at a record's end; consumequeue and index follow in recovery, which drops
what points behind the end of the log. config/ is left alone by both: a slave copies it anew
(broker/slave/cut_log.py).
"""

from __future__ import annotations

import errno
import logging
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from conf.atomic_file import replace_file
from store.clean_exit import remove_clean_exit
from store.cut_backup import Beat, backup_of, copy_from, make_directory
from store.errors import StoreError
from store.known_directories import KnownDirectories
from store.log_fences import fences_path, load_fences
from store.mapped_file import MappedFile, sync_directory, zero_range
from store.mapped_file_queue import StoreFile, list_store_files
from store.message_codec import (
    RecordKind,
    check_record,
    read_store_timestamp,
)
from store.message_store_config import MessageStoreConfig
from store.queue_states import deleted_path
from store.record_arrays import walk_records
from store.resync_request import (
    REQUEST_NAME,
    ResyncAction,
    ResyncRequest,
    drop_request,
    find_request,
    finish_request,
    is_backup_name,
    write_json,
)
from store.store_checkpoint import StoreCheckpoint
from store.timer.timer_checkpoint import load_timer_checkpoint, write_timer_checkpoint

log = logging.getLogger(__name__)

_SPARE: Final = 16 << 20
"""Bytes that stay free on the disk beside a copy."""


# -- performing --------------------------------------------------------------------------------


def perform_request(config: MessageStoreConfig, beat: Beat = lambda: None) -> str | None:
    """Do what was asked, if something was; what was done, for people.

    Call it while no process has the store open, before recovery. A request that does not fit the
    store is refused with everything untouched. Raises DiskFullError (no room for the backup;
    nothing was cut off), OSError.
    """
    root = config.root
    try:
        request = find_request(root)
    except StoreError as error:
        drop_request(root, str(error))
        return f"re-sync refused: {error}"
    if request is None:
        return None
    if request.action is ResyncAction.TRUNCATE:
        objection = _find_objection(config, request.offset)
        if objection is not None:
            drop_request(root, objection)
            return f"re-sync refused: {objection}"
    log.warning("re-sync started (%s): %s", request.action, request.reason)
    make_directory(root / request.backup)
    write_json(root / request.backup / REQUEST_NAME, asdict(request))
    KnownDirectories(root, config.log_directories).forget()
    if request.action is ResyncAction.START_OVER:
        places = _start_over(config, request, beat)
    else:
        places = _truncate(config, request, beat)
    finish_request(root)
    return _announce(request, places)


def _announce(request: ResyncRequest, places: list[Path]) -> str:
    what = (
        "the store starts over, empty"
        if request.action is ResyncAction.START_OVER
        else f"the log ends at {request.offset} now"
    )
    listed = ", ".join(str(place) for place in dict.fromkeys(places))
    text = (
        f"re-sync done, {what}; the removed files are in {listed}: "
        f"delete it with `rm -r` once nothing is missing (reason: {request.reason})"
    )
    log.warning("%s", text)
    return text


def _move(source: Path, target: Path) -> None:
    """Rename once; again after a crash it has happened already."""
    if not target.exists():
        os.rename(source, target)


# -- start over --------------------------------------------------------------------------------


def _start_over(config: MessageStoreConfig, request: ResyncRequest, beat: Beat) -> list[Path]:
    """clean.exit and checkpoint first: files without them are scanned, never trusted."""
    root, name = config.root, request.backup
    places = [root / name]
    _take_out(config, name, config.clean_exit_path, config.checkpoint_path)
    _take_out(config, name, fences_path(config.commit_log_path), *_queue_states(config))
    _take_out(config, name, config.timer_checkpoint_path, config.timer_wheel_path)
    for directory in (
        *(*config.log_directories, config.consume_queue_path, config.index_path),
        *(config.batch_consume_queue_path, config.timer_log_path, config.compaction_path),
    ):
        target = backup_of(directory, name)
        if directory.is_dir():
            _empty_into(directory.resolve(), target, beat)
            places.append(target if os.path.ismount(directory.resolve()) else target.parent)
    config.abort_path.unlink(missing_ok=True)
    return places


def _queue_states(config: MessageStoreConfig) -> tuple[Path, Path]:
    """They hold for the log that there was: of another one they would say that units are lost."""
    return config.queue_states_path, deleted_path(config.queue_states_path)


def _take_out(config: MessageStoreConfig, name: str, *files: Path) -> None:
    """Move those of `files` that exist to the backup `name` in the root."""
    for file in files:
        if file.exists():
            _move_small(file, config.root / name / file.name)
    for directory in dict.fromkeys((config.root / name, *(file.parent for file in files))):
        if directory.is_dir():
            sync_directory(directory)


def _move_small(source: Path, target: Path) -> None:
    """What lies beside the log may be on another disk than the root."""
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        replace_file(target, source.read_bytes())
        source.unlink()


def _empty_into(directory: Path, target: Path, beat: Beat) -> None:
    """Move what is in `directory`; backups (in a mount point) stay where they are."""
    make_directory(target.parent)
    make_directory(target)
    for entry in sorted(directory.iterdir()):
        if not is_backup_name(entry.name):
            _move(entry, target / entry.name)
            beat()
    sync_directory(directory)
    sync_directory(target)


# -- truncate ----------------------------------------------------------------------------------


def _find_objection(config: MessageStoreConfig, offset: int) -> str | None:
    """Why the log cannot end at `offset`; None when a record (or a blank) ends there."""
    files = list_store_files(config.log_directories)
    if not files:
        return f"the log has no files, it cannot end at {offset}"
    first, size = files[0].start_offset, config.mapped_file_size_commit_log
    end = files[-1].start_offset + size
    if not first < offset <= end:
        return f"{offset} is outside the log, whose files hold [{first}, {end})"
    last = _last_kept(files, offset, size)
    if last is None:
        return f"{offset}: the file before it is missing or shorter than {size} bytes"
    try:
        found = _last_record(config, last, offset)
    except StoreError as error:
        return str(error)
    return f"{offset} is not the end of a record" if found is None else None


def _last_kept(files: list[StoreFile], offset: int, size: int) -> StoreFile | None:
    """The file that holds the last byte that stays."""
    start = (offset - 1) - (offset - 1) % size
    return next((f for f in files if f.start_offset == start and f.size == size), None)


def _last_record(config: MessageStoreConfig, file: StoreFile, offset: int) -> int | None:
    """Position of the last record that stays; -1 when there is none behind a fence or in the file,
    but a blank perhaps; None when `offset` is not where a record, a fence or the file ends. Raises
    StoreError."""
    size, end = config.mapped_file_size_commit_log, offset - file.start_offset
    fences = load_fences(fences_path(config.commit_log_path)).within(file.start_offset, offset + 1)
    if (inside := fences.find(offset)) is not None and inside.start < offset:
        return None
    low = max([0, *(fence.end - file.start_offset for fence in fences if fence.end <= offset)])
    with MappedFile.open(file.path, file.start_offset) as mapped, mapped.view(0, end) as view:
        with view[low:] as behind:
            at, stopped = walk_records(behind)
        at, stopped = at + low, stopped + low
        if stopped < end and not (end == size and _is_blank(view, stopped, file, size)):
            return None
        if not len(at):
            return -1
        last = int(at[-1])
        found = check_record(view, last, end, file.start_offset + last, check_crc=True)
        whole = found.kind is RecordKind.MESSAGE and last + found.size == stopped
        return last if whole else None


def _is_blank(view: memoryview, position: int, file: StoreFile, size: int) -> bool:
    found = check_record(view, position, size, file.start_offset + position, check_crc=False)
    return found.kind is RecordKind.BLANK


def _truncate(config: MessageStoreConfig, request: ResyncRequest, beat: Beat) -> list[Path]:
    """Copy, take back clean.exit, move later files, zero: in this order, so that a crash leaves
    a log that recovery can read and a backup that lacks nothing of what is gone."""
    files = list_store_files(config.log_directories)
    offset, size = request.offset, config.mapped_file_size_commit_log
    kept = _last_kept(files, offset, size)
    assert kept is not None, "found by _find_objection"
    target = _backup_beside(kept, request)
    way = f"free space and start again, or remove {REQUEST_NAME} to keep the store as it is"
    copy_from(kept.path, kept.start_offset, offset, target, beat, way, spare=_SPARE)
    remove_clean_exit(config.clean_exit_path)
    _take_out(config, request.backup, *_queue_states(config))
    targets = {target: None}
    for file in reversed([f for f in files if f.start_offset >= offset]):
        place = _backup_beside(file, request)
        _move(file.path, place / file.path.name)
        targets[place] = None
    config.log_directories.sync()
    for place in targets:
        sync_directory(place)
    zero_range(kept.path, offset - kept.start_offset, kept.size)
    time_ms = _last_time_ms(config, kept, offset)
    _turn_back_checkpoint(config.checkpoint_path, offset, time_ms)
    _turn_back_timers(config.timer_checkpoint_path, time_ms)
    return list(targets)


def _backup_beside(file: StoreFile, request: ResyncRequest) -> Path:
    """Where a log file's bytes go: on the same file system."""
    target = backup_of(file.path.parent, request.backup)
    make_directory(target.parent)
    make_directory(target)
    return target


def _last_time_ms(config: MessageStoreConfig, kept: StoreFile, offset: int) -> int:
    """When the last record that stays was stored; 0: no such record."""
    last = _last_record(config, kept, offset)
    if last is None or last < 0:
        return 0
    with MappedFile.open(kept.path, kept.start_offset) as mapped, mapped.view() as view:
        return max(0, read_store_timestamp(view, last))


def _turn_back_checkpoint(path: Path, offset: int, time_ms: int) -> None:
    if not path.exists():
        return
    checkpoint = StoreCheckpoint.load(path)
    checkpoint.end_at(offset, time_ms)
    checkpoint.flush()


def _turn_back_timers(path: Path, time_ms: int) -> None:
    """Deliveries after that time were cut off: a timer may come twice, but none is passed over."""
    found = load_timer_checkpoint(path)
    if found is not None and found.last_read_time_ms > time_ms:
        write_timer_checkpoint(path, replace(found, last_read_time_ms=time_ms))
