"""Message: one commit log record as a value.

Pure data, any thread. `properties` stays the raw text of the record, so that encoding what was
decoded gives the same bytes; message_properties reads it. Corresponds to RocketMQ's MessageExt /
MessageExtBrokerInner.
"""

from __future__ import annotations

from dataclasses import dataclass

from store.message_properties import find_property, parse_properties


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The fields of a record in its order; hosts are 4 or 16 address bytes and the port as int32.

    Times are ms since 1970. `sys_flag` carries the host bits 0x10 and 0x20 as stored.
    """

    topic: str
    queue_id: int
    flag: int = 0
    queue_offset: int = 0
    phy_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = bytes(8)
    store_timestamp: int = 0
    store_host: bytes = bytes(8)
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body: bytes = b""
    properties: bytes = b""

    def property_map(self) -> dict[str, str]:
        """Name to value of all properties."""
        return parse_properties(str(self.properties, "utf-8", "replace"))

    def find_property(self, name: str) -> str | None:
        """One property's value, None when the record has none of that name."""
        value = find_property(self.properties, name.encode())
        return None if value is None else str(value, "utf-8", "replace")
