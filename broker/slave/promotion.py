"""Promotion: a slave records what it lacks of its master's log; a start as master checks that.

Operators change roles: they edit brokerRole and brokerId and restart. Promoting a slave loses the
messages that it lacks. So a slave maintains <root>/replica.json, and a start as master is refused
if that file shows missing messages (`check_promotion`, in the supervisor, before any child).
ReplicaJournal runs in process `remoting` of a slave. It is notified of every inspection, polls its
master for the end of its log (28) every few seconds through the scheduled executor, and writes the
file. A poll shows two things: the current lag, and, later, whether the slave has reached the polled
offset. A slave that is constantly some seconds behind also reaches it, and lacks those seconds if
its master is lost. Messages that the master stores after the last poll are in no file. Demoting a
master needs nothing here: the inspection compares the logs.

    <root>/replica.json            ReplicaState as JSON, replaced whole
    <root>/replica.json.promoted   the last state, kept after a promotion
"""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from broker.settings.startup_options import StartupOptions
from broker.slave.remote_log import MasterRefusesError, read_facts, runtime_request
from broker.slave.sync_kind import SLAVE_SYNC_SUCCESS, SyncKind
from conf.atomic_file import sync_directory, write_atomic
from conf.errors import EXIT_CANNOT_START, StartupExitError
from ha.inspection import Inspection, Verdict
from ipc.clock import Clock
from ipc.control_page import ControlPage
from remoting.remoting_command import RemotingCommand
from store.clean_exit import machine_went_down
from store.control_slots import FLUSHED_OFFSET, MAX_PHY_OFFSET
from store.errors import StoreError
from store.resync_request import drop_request, find_done, find_request, forget_done

if TYPE_CHECKING:
    from remoting.remoting_client import RemotingClient

log = logging.getLogger(__name__)

FILE_NAME: Final = "replica.json"
TICK_MS: Final = 5_000
_PROMOTED: Final = "replica.json.promoted"
_ASK_MS: Final = 3_000
_HEALTHY_LAG: Final = 16 << 20
"""Bytes in flight (frames, socket buffers of both sides) while a slave follows at full speed. A
larger lag is a backlog."""
_UNKNOWN: Final = -1
_TIMES: Final = ("masterAskedAt", "masterSilentSince", "tablesCopiedAt", "writtenAt")
_LAST_TIME_MS: Final = 253_402_300_799_999
"""The end of the year 9999: no later time can be shown."""
_LARGEST: Final = 2**63 - 1
_read_object: Final = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """A slave's record of its own state. Offsets are log positions, -1 = unknown; times are wall
    clock ms.

    masterMaxOffset: at the last poll, at masterAskedAt; lagBytes: this slave's lag at that moment.
    masterSilentSince: when the first poll after it failed, 0 if none has. ownMaxOffset,
    flushedOffset: when this was written. commonOffset: where the logs diverge (state ahead or
    diverged), else -1. firstCopyDone: the slave has caught up with its master at least once.
    inSync: it has reached the master's offset of the last poll, and had no backlog then. state: the
    last verdict of an inspection. tablesCopiedAt: when topics, groups and offsets were last copied
    from a master, 0 = never as a slave, -1 = written by a version that did not record it.
    """

    role: str = "SLAVE"
    brokerName: str = ""  # noqa: N815
    brokerId: int = 0  # noqa: N815
    masterAddress: str = ""  # noqa: N815
    masterMaxOffset: int = _UNKNOWN  # noqa: N815
    masterAskedAt: int = 0  # noqa: N815
    lagBytes: int = _UNKNOWN  # noqa: N815
    masterSilentSince: int = 0  # noqa: N815
    ownMaxOffset: int = 0  # noqa: N815
    flushedOffset: int = 0  # noqa: N815
    commonOffset: int = _UNKNOWN  # noqa: N815
    firstCopyDone: bool = False  # noqa: N815
    inSync: bool = False  # noqa: N815
    state: str = ""
    tablesCopiedAt: int = _UNKNOWN  # noqa: N815
    writtenAt: int = 0  # noqa: N815

    def lacks(self, *, only_flushed: bool = False) -> int | None:
        """Bytes of the master's log missing here; None if the end of the master's log is unknown.

        only_flushed: the machine went down since then, so only data on disk counts.
        """
        if self.masterMaxOffset < 0:
            return None
        have = min(self.ownMaxOffset, self.flushedOffset) if only_flushed else self.ownMaxOffset
        if self.state in (Verdict.AHEAD, Verdict.DIVERGED):
            have = min(have, max(0, self.commonOffset))
        return max(0, self.masterMaxOffset - have)

    @property
    def had_backlog(self) -> bool:
        """Whether the lag at the last poll was larger than that of a healthy slave."""
        return self.lagBytes > _HEALTHY_LAG


class PromotionOutlook(NamedTuple):
    """Whether a slave may become the master; objection "": it may."""

    objection: str
    basis: str
    """When its master was seen last, and how far behind this slave was then."""


def read_state(path: Path) -> ReplicaState | None:
    """Read the file; None if it does not exist. Raises StoreError naming it."""
    try:
        found = _read_object(path.read_bytes())
        found.setdefault("tablesCopiedAt", _UNKNOWN)
        known = {item.name: found[item.name] for item in fields(ReplicaState)}
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeError, KeyError, OSError, RecursionError) as error:
        raise StoreError(f"{path}: malformed ({error!r})") from error
    model = ReplicaState()
    wrong = [name for name, value in known.items() if type(value) is not type(getattr(model, name))]
    if wrong:
        raise StoreError(f"{path}: {', '.join(wrong)}: wrong type")
    odd = [name for name, value in known.items() if not _is_possible(name, value)]
    if odd:
        raise StoreError(f"{path}: {', '.join(odd)}: no slave writes such a number")
    return ReplicaState(**known)


def _is_possible(name: str, value: object) -> bool:
    if type(value) is not int:
        return True
    return _UNKNOWN <= value <= (_LAST_TIME_MS if name in _TIMES else _LARGEST)


# -- while it is a slave -----------------------------------------------------------------------


class ReplicaJournal:
    """Maintains replica.json. Guarded by: its lock (state) and the write lock (file).

    The client's loop thread only records values; the executor's thread, the inspecting thread and
    the thread that shuts down write the file.
    """

    def __init__(
        self,
        root: Path,
        broker_name: str,
        broker_id: int,
        page: ControlPage,
        client: RemotingClient,
        clock: Clock,
    ) -> None:
        """Continues from the file of a previous run; an unreadable file is ignored."""
        self._path = root / FILE_NAME
        self._counters = page.counters
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()
        self._written: ReplicaState | None = None
        try:
            self._written = read_state(self._path)
        except StoreError as error:
            log.error("%s; starting a new one", error)
        self._state = replace(
            self._written or ReplicaState(tablesCopiedAt=0),
            brokerName=broker_name,
            brokerId=broker_id,
        )

    @property
    def divergence(self) -> str | None:
        """ "ahead" or "diverged" when that is what the last comparison found, be it in a life
        before; else None."""
        state = self._state.state
        return state if state in (Verdict.AHEAD, Verdict.DIVERGED) else None

    @property
    def was_compared(self) -> bool:
        """Whether the log was ever compared with that of a master, be it in a life before."""
        return bool(self._state.state)

    def on_inspection(self, result: Inspection) -> None:
        """MasterInspector.on_result. Writes at once if the state changes."""
        with self._lock:
            before = self._state
            self._state = self._after(result)
            changed = before.state != self._state.state
        if changed:
            self._write()

    def _after(self, result: Inspection) -> ReplicaState:
        if result.verdict is Verdict.WAIT:
            return self._state
        if result.master_max < 0:
            # Not compared: the previous finding still stands.
            return self._state if self._state.state else replace(self._state, state=result.verdict)
        starts_over = result.verdict in (Verdict.START_AT, Verdict.BELOW_MIN)
        found = replace(
            self._state,
            commonOffset=result.common_offset,
            firstCopyDone=self._state.firstCopyDone and not starts_over,
            state=result.verdict,
        )
        return self._after_poll(found, result.master_address or "", result.master_max)

    def _after_poll(self, state: ReplicaState, address: str, master_max: int) -> ReplicaState:
        """Record a poll: the master's log ends at `master_max` now."""
        found = replace(
            state,
            masterAddress=address,
            masterMaxOffset=master_max,
            masterAskedAt=self._clock.now_ms(),
            masterSilentSince=0,
            ownMaxOffset=self._counters[MAX_PHY_OFFSET],
        )
        return replace(found, lagBytes=found.lacks() or 0)

    def tick(self, address: str | None) -> None:
        """Write the state, then poll the end of the master's log; the local log has until the next
        tick to reach it. address: the master's remoting "ip:port". Scheduled executor; does not
        wait for the response."""
        self._write()
        if address is None:
            return

        def on_answer(response: RemotingCommand | None, error: Exception | None) -> None:
            if response is None:
                log.debug("master %s: cannot get the end of its log: %s", address, error)
                with self._lock:
                    since = self._state.masterSilentSince or self._clock.now_ms()
                    self._state = replace(self._state, masterSilentSince=since)
                return
            try:
                facts = read_facts(address, response)
            except MasterRefusesError as refusal:
                log.debug("%s", refusal)
                return
            with self._lock:
                self._state = self._after_poll(self._state, address, facts.max_offset)

        self._client.invoke_async(address, runtime_request(), _ASK_MS, on_answer)

    def outlook(self) -> PromotionOutlook:
        """What a start as master would find now. The machine's end is not looked at: this process
        lives. Any thread."""
        with self._lock:
            state = replace(self._completed(), writtenAt=self._clock.now_ms())
        root = self._path.parent
        if objection := _resync_objection(root) or _cut_objection(root):
            return PromotionOutlook(objection, "")
        if not state.state:
            return PromotionOutlook(f"{self._path}: nothing is recorded yet", "")
        objection = _state_objection(self._path, state, machine_went_down=False)
        return PromotionOutlook(objection or "", _look_text(state))

    def tables_copied(self, _master: str) -> None:
        """The end of a round of SlaveSynchronize: the first complete one is written at once, since
        a start as master without it would be refused."""
        if self._state.tablesCopiedAt <= 0 and self._tables_copied_ms():
            self._write()

    def close(self) -> None:
        """Write the final state, in an orderly shutdown, after the link has closed."""
        self._write()

    def _write(self) -> None:
        """Write the file, unless the state is unknown or unchanged."""
        with self._write_lock:
            with self._lock:
                found = self._completed()
                self._state = found
            if not found.state or self._is_written(found):
                return
            self._written = replace(found, writtenAt=self._clock.now_ms())
            text = msgspec.json.format(msgspec.json.encode(asdict(self._written)))
            try:
                write_atomic(self._path, text)
            except OSError as error:
                log.error("%s: cannot be written: %s", self._path, error)

    def _completed(self) -> ReplicaState:
        found = replace(
            self._state,
            ownMaxOffset=self._counters[MAX_PHY_OFFSET],
            flushedOffset=self._counters[FLUSHED_OFFSET],
            tablesCopiedAt=self._tables_copied_ms() or self._state.tablesCopiedAt,
        )
        came_there = found.lacks() == 0
        return replace(
            found,
            inSync=came_there and not found.had_backlog,
            firstCopyDone=found.firstCopyDone or came_there,
        )

    def _tables_copied_ms(self) -> int:
        """When the oldest of the tables was copied, in this life; 0: one was not."""
        return min(self._counters[SLAVE_SYNC_SUCCESS + kind] for kind in SyncKind)

    def _is_written(self, found: ReplicaState) -> bool:
        written = self._written
        return written is not None and replace(found, writtenAt=written.writtenAt) == written


# -- at a start as a master ----------------------------------------------------------------


def check_promotion(options: StartupOptions) -> None:
    """Raises StartupExitError if this start would promote a slave that lacks messages, unless
    haPromoteUnclean is set. Changes nothing; logs nothing."""
    if options.store.is_slave or options.ha.ha_promote_unclean:
        return
    root = options.store.root
    went_down = machine_went_down(options.store.abort_path)
    objection = _find_objection(root, machine_went_down=went_down)
    if objection is not None:
        raise StartupExitError(
            EXIT_CANNOT_START,
            f"mqbroker: brokerRole={options.store.broker_role.name} refused: {objection}."
            " Either start the old master first and this broker as its SLAVE until"
            " `mqadmin haStatus` shows lag 0, or set haPromoteUnclean=true to accept the loss",
            to_stdout=False,
        )


def complete_promotion(options: StartupOptions) -> None:
    """Complete a promotion, with the store locked; later starts are not checked. Raises OSError."""
    root = options.store.root
    path = root / FILE_NAME
    if options.store.is_slave:
        return
    went_down = machine_went_down(options.store.abort_path)
    objection = _find_objection(root, machine_went_down=went_down)
    if objection is not None:
        log.error("becoming master despite this, because haPromoteUnclean is set: %s", objection)
    if _resync_waits(root):
        drop_request(root, "the broker was started as a master")
    if find_done(root) is not None:
        forget_done(root)
    if path.exists():
        last_look = _last_look_text(path)
        os.replace(path, root / _PROMOTED)
        sync_directory(root)
        log.warning(
            "this store belonged to a slave and now belongs to a master (%s kept); %s",
            _PROMOTED,
            last_look,
        )


def _resync_waits(root: Path) -> bool:
    try:
        return find_request(root) is not None
    except StoreError:
        return True


def _resync_objection(root: Path) -> str | None:
    if not _resync_waits(root):
        return None
    return f"{root / 'resync.json'}: a resync of this slave is pending, its log is incomplete"


def _cut_objection(root: Path) -> str | None:
    done = find_done(root)
    if done is None:
        return None
    return (
        f"{done}, and topics, groups and offsets were not copied from a master since: consumers "
        "would pass over messages"
    )


def _find_objection(root: Path, *, machine_went_down: bool) -> str | None:
    """Why a promotion would lose messages, according to replica.json; None if it would not."""
    if objection := _resync_objection(root) or _cut_objection(root):
        return objection
    path = root / FILE_NAME
    try:
        state = read_state(path)
    except StoreError as error:
        return f"{error}; this file is needed to tell whether this slave lacks messages"
    if state is None:
        return None
    return _state_objection(path, state, machine_went_down=machine_went_down)


def _state_objection(path: Path, state: ReplicaState, *, machine_went_down: bool) -> str | None:
    """Pure. `path` is used in the text."""
    when = f"at {_time_text(state.writtenAt)}"
    lacking = state.lacks(only_flushed=machine_went_down)
    if lacking is None:
        return f"{path}: {when} this slave had never been compared with a master"
    if lacking == 0 and not state.had_backlog:
        return _tables_objection(path, state)
    if lacking == 0:
        return f"{path}: {_look_text(state)}"
    what = f"{path}: {when} this slave lacked {lacking} bytes of its master {state.masterAddress}"
    if machine_went_down and state.lacks() == 0:
        what += " on disk, and the machine went down since"
    elif state.state == Verdict.DIVERGED:
        what += ", from which its log had diverged"
    elif not state.firstCopyDone:
        what += ", its first copy was not finished"
    return what


def _tables_objection(path: Path, state: ReplicaState) -> str | None:
    if state.tablesCopiedAt != 0:
        return None
    return (
        f"{path}: at {_time_text(state.writtenAt)} this slave had every message of its master "
        f"{state.masterAddress}, but had never copied topics, groups and offsets: every consumer "
        "would start over"
    )


def _last_look_text(path: Path) -> str:
    try:
        state = read_state(path)
    except StoreError as error:
        return str(error)
    if state is None or state.masterMaxOffset < 0:
        return "it had never been compared with a master"
    return _look_text(state)


def _look_text(state: ReplicaState) -> str:
    """When the master was last seen and the lag at that time, as far as this slave knows."""
    text = (
        f"its master {state.masterAddress} was last seen at {_time_text(state.masterAskedAt)}, "
        f"this slave was {state.lagBytes} bytes behind then"
    )
    silent = state.masterSilentSince
    end = silent or state.writtenAt
    seconds = max(0, end - state.masterAskedAt) / 1000
    what = "the master stopped responding" if silent else "this slave's last entry was written"
    text = (
        f"{text}; {what} {seconds:.1f} s later, messages that the master stored in between are "
        "unknown"
    )
    if state.tablesCopiedAt > 0:
        text += f"; topics, groups and offsets are of {_time_text(state.tablesCopiedAt)}"
    return text


def _time_text(wall_ms: int) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
