"""The slot of the control page that says whether clients find this broker.

Written by process `remoting` after each registration; the supervisor reads it and tells the
operator. A constant only.

    slot  meaning
    49    with how many of its name servers the broker is not registered
"""

from __future__ import annotations

from typing import Final

from ipc.control_page import claim_slots

NAME_SERVERS_MISSING: Final = claim_slots("name_servers_missing", 49)
