"""The slots of the control page that say how far the store's files may be read.

The mapped files are the message passing (docs/ARCHITECTURE.md, rule 2). Each slot has one writer,
the log writer being `remoting` on a master and `ha` on a slave. Constants only; any process.

    slot  writer        meaning (bytes are positions in the commit log)
    1     log writer    append_end: where the batch that is being copied will end
    2     log writer    max_phy_offset: whole records end here; readers read up to here
    3     log writer    store timestamp (ms) of the newest record
    4     log writer    sync_flush_wanted: an answer waits until this offset is flushed
    5     remoting      monotonic ms at which a pull was last held: somebody waits for dispatch
    8     store         min_phy_offset: start of the oldest file
    9     store         dispatched_offset: consumequeue and index are built up to here
    10    store         flushed_offset: on disk up to here
    11    store         allocated_end: end of the last file that is ready to be written
    12    store         state (StoreState)
    13    store         running flags (store/running_flags.py): why writing is refused, 0 = writable
    14    store         queue moves: counts entries of the queue table's ring of moved rows
    15    store, then   confirm_offset, in controller mode: consumers read up to here. What the
          ha            check point says at the start, then the member's word; NO_BOUND: no bound
    18    store         log_opened: 1 + the log's end when the store was opened; 0: not known yet
    20    store         version of the page's text: why writing is refused (slot 13)
    128+r who reads so  records that were put aside by ReadBy r (store/put_aside.py)
    144+2p process p    what it reads now: 1 + ReadBy, 0: nothing; and the record's phy_offset
    200   store         consume queues that are being rebuilt
    201   store         consume queue units that were rebuilt from the log
    202   store         consume queue units for which the log had no record
    203   store         light queues that cannot be written (store/unwritable_queues.py)
    208   store         log_fences: grows with every change of the log's fences; 0: not opened yet
    209   store         how many ranges of the log are fenced (store/log_fences.py)
    210   store         bytes inside of them
    216   store         records without a consume queue unit, since their queue offset cannot be
    217   store         bytes of the emergency space that are held (store/emergency_space.py)
    219   store, then   masterFlushedOffset: what the checkpoint says at the start, then what 906
          remoting      and 908 have set
    224+p remoting      due messages that were put off by PutOffBy p
    232   store         scrub: bytes of the log that were read again
    233   store         scrub: wall clock ms at which the last whole pass ended; 0: none yet
    234   store         scrub: passes that ended
    235   store         scrub: damaged ranges of the log that it found
    236   store         scrub: chunks whose bytes are not those that were read first
    237   store         ranges of the log that were repaired
    238   remoting      chunks of the log that differ from another broker's, by the last comparison
"""

from __future__ import annotations

import enum
from typing import Final

from ipc.control_page import ControlPage, claim_slots

APPEND_END: Final = claim_slots("append_end", 1)
MAX_PHY_OFFSET: Final = claim_slots("max_phy_offset", 2)
STORE_TIMESTAMP: Final = claim_slots("store_timestamp", 3)
SYNC_FLUSH_WANTED: Final = claim_slots("sync_flush_wanted", 4)
PULL_HELD_MS: Final = claim_slots("pull_held_ms", 5)
MIN_PHY_OFFSET: Final = claim_slots("min_phy_offset", 8)
DISPATCHED_OFFSET: Final = claim_slots("dispatched_offset", 9)
FLUSHED_OFFSET: Final = claim_slots("flushed_offset", 10)
ALLOCATED_END: Final = claim_slots("allocated_end", 11)
STORE_STATE: Final = claim_slots("store_state", 12)
RUNNING_FLAGS: Final = claim_slots("running_flags", 13)
QUEUE_MOVES: Final = claim_slots("queue_moves", 14)
CONFIRM_OFFSET: Final = claim_slots("confirm_offset", 15)
NO_BOUND: Final = (1 << 63) - 1
"""Of CONFIRM_OFFSET: everything that is published may be read."""
LOG_OPENED: Final = claim_slots("log_opened", 18)
REFUSAL_VERSION: Final = claim_slots("refusal_version", 20)
PUT_ASIDE: Final = claim_slots("put_aside", 128, 16)
READING: Final = claim_slots("reading", 144, 16)
QUEUES_REBUILDING: Final = claim_slots("queues_rebuilding", 200)
QUEUE_UNITS_REBUILT: Final = claim_slots("queue_units_rebuilt", 201)
QUEUE_UNITS_LOST: Final = claim_slots("queue_units_lost", 202)
LIGHT_QUEUES_UNWRITABLE: Final = claim_slots("light_queues_unwritable", 203)
LOG_FENCES: Final = claim_slots("log_fences", 208)
FENCE_COUNT: Final = claim_slots("fence_count", 209)
FENCED_BYTES: Final = claim_slots("fenced_bytes", 210)
RECORDS_LEFT_OUT: Final = claim_slots("records_left_out", 216)
EMERGENCY_BYTES: Final = claim_slots("emergency_bytes", 217)
MASTER_FLUSHED_OFFSET: Final = claim_slots("master_flushed_offset", 219)
PUT_OFF: Final = claim_slots("put_off", 224, 4)
SCRUBBED_BYTES: Final = claim_slots("scrubbed_bytes", 232)
SCRUB_PASS_ENDED_MS: Final = claim_slots("scrub_pass_ended_ms", 233)
SCRUB_PASSES: Final = claim_slots("scrub_passes", 234)
SCRUB_DAMAGED_RANGES: Final = claim_slots("scrub_damaged_ranges", 235)
CHANGED_CHUNKS: Final = claim_slots("changed_chunks", 236)
REPAIRED_RANGES: Final = claim_slots("repaired_ranges", 237)
DIFFERING_CHUNKS: Final = claim_slots("differing_chunks", 238)
_UNREADABLE_REFUSAL: Final = "see store.log"


class PutOffBy(enum.IntEnum):
    """Who has put a due message off (broker/append/room_waits.py). The numbers are slots."""

    TIMER_DELIVERY = 0
    DELAY_DELIVERY = 1
    POP_REVIVAL = 2

    @property
    def label(self) -> str:
        """In metrics and logs."""
        return self.name.lower()


class StoreState(enum.IntEnum):
    """How far the `store` process is: only from READY on may the log be written."""

    STARTING = 0
    RECOVERING = 1
    READY = 2
    STOPPED = 3


def refuse_writes(page: ControlPage, flags: int, reason: str) -> None:
    """Publish the running flags and why; `flags` 0: writing is allowed. Process `store` only, one
    thread at a time."""
    page.publish_text(REFUSAL_VERSION, reason)
    page.counters[RUNNING_FLAGS] = flags


def write_refusal(page: ControlPage) -> str:
    """Why the store refuses writes; empty when it does not."""
    if not page.counters[RUNNING_FLAGS]:
        return ""
    text = page.find_text(REFUSAL_VERSION)
    if text is None:
        return _UNREADABLE_REFUSAL if page.counters[RUNNING_FLAGS] else ""
    return text
