"""The slots of the control page that say how far the log's replicas are.

Process `ha` is their only writer. Constants only; any process reads.

    slot  meaning (bytes are positions in the commit log)
    16    replicated_offset: enough live replicas have acknowledged up to here
    17    distinct live replicas that are not further back than haSlaveFallbehindMax
    19    highest_sent: the highest offset sent to a slave since the store was opened
    22    replica_flushed_offset: enough of those whose reports mean "on disk" have (our slaves with
          haAckLevel=flushed); 0 where there are not that many
    23    1 while this slave is linked with its master, else 0
    64+r  replication links refused or closed for reason r (ha/refusals.py)
"""

from __future__ import annotations

from typing import Final

from ipc.control_page import claim_slots

REPLICATED_OFFSET: Final = claim_slots("replicated_offset", 16)
REPLICA_COUNT: Final = claim_slots("replica_count", 17)
HIGHEST_SENT: Final = claim_slots("highest_sent", 19)
REPLICA_FLUSHED_OFFSET: Final = claim_slots("replica_flushed_offset", 22)
MASTER_LINKED: Final = claim_slots("master_linked", 23)
HA_REFUSALS: Final = claim_slots("ha_refusals", 64, 32)
