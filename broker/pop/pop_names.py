"""Names and constants of pop: the revive group, tags of its records, limits.

Pure data, any thread (Java: PopAckConstants, PopMessageProcessor.genCkUniqueId and its like).
"""

from __future__ import annotations

from typing import Final

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""Its consumer offset is the queue offset of the last handled check point."""
CK_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
CK: Final = "CK"
ACK: Final = "ACK"
"""The kinds of these records in metrics (PopReviveMessageType)."""
ACK_TIME_INTERVAL_MS: Final = 1_000
"""A check point comes out of the timer so much earlier than the acks of the same pop."""
MAX_POP_MESSAGES: Final = 32
"""Of one request: the bitmap of a check point is an int."""
QUEUE_LOCK_MS: Final = 5_000
UNSET_REMARK: Final = "not set any response code"
"""What Java leaves in an answer whose code it sets later."""
