"""The slots of the control page that say how compaction fares. Constants only; any process.

slot  writer   meaning
160   store    compaction logs that are open
161   store    compactions that ended
162   store    compactions that failed
163   store    wall clock ms at which the last one ended; 0: none yet
164   store    bytes of records that it has read
165   store    bytes of records that it has kept
166   store    records that were copied from the commit log
167   store    records without a key, which are in no compaction log
168   store    records that are dispatched and not copied yet
"""

from __future__ import annotations

from typing import Final

from ipc.control_page import claim_slots

COMPACTION_LOGS: Final = claim_slots("compaction_logs", 160)
COMPACTIONS: Final = claim_slots("compactions", 161)
COMPACTIONS_FAILED: Final = claim_slots("compactions_failed", 162)
COMPACTION_ENDED_MS: Final = claim_slots("compaction_ended_ms", 163)
COMPACTION_BYTES_BEFORE: Final = claim_slots("compaction_bytes_before", 164)
COMPACTION_BYTES_AFTER: Final = claim_slots("compaction_bytes_after", 165)
COMPACTION_RECORDS: Final = claim_slots("compaction_records", 166)
COMPACTION_KEYLESS: Final = claim_slots("compaction_keyless", 167)
COMPACTION_BEHIND: Final = claim_slots("compaction_behind", 168)
