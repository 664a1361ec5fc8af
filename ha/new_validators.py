"""How the records that come from a master are judged, with the settings of this broker.

For both protocols; imported by a broker that follows, as it needs numpy. Knows no records.
"""

from __future__ import annotations

from ha.ha_config import HaAckLevel, HaConfig
from ha.queue_ends import QueueOffsets, make_queue_ends
from ha.record_validator import RecordValidators
from ha.source_files import LogSource
from ipc.clock import Clock


def new_validators(
    source: LogSource, queue_offsets: QueueOffsets, config: HaConfig, clock: Clock
) -> RecordValidators:
    """source: the own log. queue_offsets: of the own consume queues."""
    return RecordValidators(
        source.file_size,
        make_queue_ends(queue_offsets, source.page),
        clock,
        check_crc=config.ha_ack_level is not HaAckLevel.received,
    )
