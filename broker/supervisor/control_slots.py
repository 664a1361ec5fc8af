"""The slots of the control page that say whether the broker serves, and whether it stops.

The supervisor takes both back when the store is opened anew. Constants only.

    slot  writer      meaning
    48    remoting    1 once it serves requests
    51    supervisor  1 when `remoting` and `ha` have ended and it asks `store` to stop
"""

from __future__ import annotations

from typing import Final

from ipc.control_page import claim_slots

REMOTING_READY: Final = claim_slots("remoting_ready", 48)
WRITERS_STOPPED: Final = claim_slots("writers_stopped", 51)
