"""The slots of the control page that say how far the log's replicas are, and which role this broker
has in a group with a controller.

Process `ha` is their only writer, but for slots 173, 182 and those of a loan. Any process reads.

    slot  meaning (bytes are positions in the commit log)
    16    replicated_offset: enough live replicas have acknowledged up to here
    17    distinct live replicas that are not further back than haSlaveFallbehindMax
    19    highest_sent: the highest offset sent to a slave since the store was opened
    22    replica_flushed_offset: enough of those whose reports mean "on disk" have (our slaves with
          haAckLevel=flushed); 0 where there are not that many
    23    1 while this slave is linked with its master, else 0
    182   written by `remoting`: isolated until the group is linked (broker/slave/pre_online.py): 0:
          it is not; 1: it is; 2 + n: and waits for the broker of its group with id n
    183   loan: the number of the loan (link_loan.py) of a connection whose reports alone make the
          log replicated; 0: there is none
    184   written by `remoting`, as the next two: lent_number: the loan that they are about
    185   lent_sent: up to here a lent connection was sent the log; stays when it is given back
    186   lent_acked: up to here it has acknowledged it
    188   loan_looks: how often `ha` has looked at the slots of the loan
    189+p written by `remoting`: lent_at_risk: the most bytes that no replica had acknowledged
          since look p, modulo 2
    64+r  replication links refused or closed for reason r (ha/refusals.py)

    In controller mode (docs/failover.md, "Roles at run time"); elsewhere they stay 0:

    169   member_order: which role process `remoting` has to take: 4 * n + MemberRole, with a new n
          for each order; 0: none was given yet, which means FENCED
    170   master_epoch: the newest epoch whose role was taken
    171   puts_until_ms: monotonic ms until which a leader takes puts (its self-fence); NO_BOUND:
          without end
    172   puts_refused: the response code that puts are refused with, though this broker leads; 0:
          they are taken
    173   written by `remoting`: order_taken: the member_order that it has carried out. Before that
          of another role than LEAD is there, the log may have another writer than `ha`
    174   member_id: the id that the controller gave; 0: none yet
    175   sync_state_set_size: how many may be in a leader's SyncStateSet, itself included; else 0
    176   master_broker_id: who leads as far as this broker knows; 0: nobody
    177   role_since_ms: monotonic ms at which the role of slot 169 was taken
    178   role_records: how many roles were ever taken (broker/failover/role_log.py), over restarts
    179   two_masters_seen: how often another master was named in the epoch in which this one leads
    180   master_seen_ms: monotonic ms at which this broker last led, or was linked with its master
    181   without_master_ms: how long it did neither, ms since this broker was started
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final

from ipc.control_page import claim_slots

REPLICATED_OFFSET: Final = claim_slots("replicated_offset", 16)
REPLICA_COUNT: Final = claim_slots("replica_count", 17)
HIGHEST_SENT: Final = claim_slots("highest_sent", 19)
REPLICA_FLUSHED_OFFSET: Final = claim_slots("replica_flushed_offset", 22)
MASTER_LINKED: Final = claim_slots("master_linked", 23)
HA_REFUSALS: Final = claim_slots("ha_refusals", 64, 32)
MEMBER_ORDER: Final = claim_slots("member_order", 169)
MASTER_EPOCH: Final = claim_slots("master_epoch", 170)
PUTS_UNTIL_MS: Final = claim_slots("puts_until_ms", 171)
PUTS_REFUSED: Final = claim_slots("puts_refused", 172)
ORDER_TAKEN: Final = claim_slots("order_taken", 173)
MEMBER_ID: Final = claim_slots("member_id", 174)
SYNC_STATE_SET_SIZE: Final = claim_slots("sync_state_set_size", 175)
MASTER_BROKER_ID: Final = claim_slots("master_broker_id", 176)
ROLE_SINCE_MS: Final = claim_slots("role_since_ms", 177)
ROLE_RECORDS: Final = claim_slots("role_records", 178)
TWO_MASTERS_SEEN: Final = claim_slots("two_masters_seen", 179)
MASTER_SEEN_MS: Final = claim_slots("master_seen_ms", 180)
WITHOUT_MASTER_MS: Final = claim_slots("without_master_ms", 181)
ISOLATED: Final = claim_slots("isolated", 182)
LOAN: Final = claim_slots("loan", 183)
LENT_NUMBER: Final = claim_slots("lent_number", 184)
LENT_SENT: Final = claim_slots("lent_sent", 185)
LENT_ACKED: Final = claim_slots("lent_acked", 186)
LOAN_LOOKS: Final = claim_slots("loan_looks", 188)
LENT_AT_RISK: Final = claim_slots("lent_at_risk", 189, 2)
ISOLATED_ALONE: Final = 1
ISOLATED_AWAITS: Final = 2


def isolation_text(counters: Sequence[int]) -> str:
    """Why this broker is isolated, for operators; empty: it is not."""
    slot = counters[ISOLATED]
    if not slot:
        return ""
    awaited = f", waits for broker id {slot - ISOLATED_AWAITS}" if slot >= ISOLATED_AWAITS else ""
    return f"isolated until its group is linked (totalReplicas){awaited}"


class MemberRole(enum.IntEnum):
    """What a broker in controller mode does with its log. The numbers are in slot 169."""

    FENCED = 0
    """No master is known: nobody writes."""
    FOLLOW = 1
    """Process `ha` writes what the master sends."""
    LEAD = 2
    """Process `remoting` writes."""


def order_after(order: int, role: MemberRole) -> int:
    """The next order, of `role`."""
    return (order // 4 + 1) * 4 + role


def role_of(order: int) -> MemberRole:
    """The role that is ordered."""
    return MemberRole(order % 4)


def leads(counters: memoryview[int]) -> bool:
    """Whether this broker leads: it was ordered to, and process `remoting` has done so."""
    order = counters[MEMBER_ORDER]
    return counters[ORDER_TAKEN] == order and role_of(order) is MemberRole.LEAD
