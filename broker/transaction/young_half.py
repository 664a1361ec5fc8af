"""YoungHalf: a half message that was stored a moment ago, as YoungHalves keeps it.

Pure data, loop thread of `remoting`. In a module of its own because msgspec makes its class
(docs/compiled_modules.md).
"""

from __future__ import annotations

import msgspec

from store.record import Record


class YoungHalf(msgspec.Struct, frozen=True, gc=False):
    """A half that was stored at `phy_offset`. topic: that of the message, not the half topic."""

    phy_offset: int
    topic: str
    committed: Record
    """What its commit stores, as transaction_records.committed makes it."""
    size: int
    """Bytes that it takes here."""
