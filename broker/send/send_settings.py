"""The settings of SendMessageProcessor. Pure data of the loop thread."""

from __future__ import annotations

import msgspec


class SendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of this processor."""

    broker_name: str
    cluster_name: str
    region_id: str
    trace_on: bool
    max_message_size: int
    start_accept_send_request_timestamp_ms: int
    is_slave: bool
    """For the life of this process. Where the role may change, the append queue refuses."""
    max_delay_level: int
    lmq_quota: bool = False
    """enableLmqQuota: how one light queue too many is answered."""
    recall_by_property: bool = False
    """recallByPropertyEnable."""
    reject_transactions: str = ""
    """Why transactional messages are rejected; empty if they are accepted."""
