"""The slot of the control page that says whether the broker serves.

Written by process `remoting`; the supervisor reads it, and takes it back when the store is opened
anew. A constant only.

    slot  meaning
    48    1 once process `remoting` serves requests
"""

from __future__ import annotations

from typing import Final

from ipc.control_page import claim_slots

REMOTING_READY: Final = claim_slots("remoting_ready", 48)
