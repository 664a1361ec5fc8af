"""The slots of the control page about this broker's name servers. Constants only.

slot  written by  meaning
49    remoting    with how many of its name servers the broker is not registered; the supervisor
                  tells the operator
50    supervisor  1: its only name server is the one that it embeds, since none is named
"""

from __future__ import annotations

from typing import Final

from ipc.control_page import claim_slots

NAME_SERVERS_MISSING: Final = claim_slots("name_servers_missing", 49)
EMBEDS_NAME_SERVER: Final = claim_slots("embeds_name_server", 50)
