"""Which request codes the originals define and answer, and why ours leaves some out.

Facts only, read off the sources of 4.9.8, 5.3.3 and 5.5.0: their constants (RequestCode), what
their brokers register (BrokerController) and what the default processor there takes (the switch of
AdminBrokerProcessor), the switch of the name server's DefaultRequestProcessor. What ours answers
is not here: that is asked of its route tables (compatibility_document.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFINED_498: Final = frozenset(
    {
        *(10, 11, 12, 13, 14, 15, 17, 21, 22, 23, *range(25, 44), 45, 46, *range(50, 54)),
        *range(100, 107),
        *range(200, 217),
        *range(219, 225),
        *range(300, 330),
    }
)
"""RequestCode of 4.9.8."""

ONLY_498: Final = frozenset(range(50, 54))
ONLY_533: Final = frozenset(
    {
        *(18, 47, 60, 61, 217, 225, 343, 345, *range(351, 356), 361, 370, 400, 401, 402, 513),
        *range(901, 909),
        *range(1001, 1019),
        *range(2001, 2005),
        *range(3001, 3011),
        *range(200050, 200057),
        200151,
    }
)
DEFINED_533: Final = DEFINED_498 - ONLY_498 | ONLY_533
"""RequestCode of 5.3.3."""

DEFINED_550: Final = DEFINED_533 | {5001, *range(200070, 200080)}
"""RequestCode of 5.5.0."""

DEFINED_551: Final = DEFINED_550 | {5002, 5003}
"""The same of 5.5.1."""

OURS: Final = frozenset({54, 28906, 28907, *range(28910, 28915)})
"""Codes of ours."""

_BOTH_BROKERS: Final = frozenset(
    {
        # Registered with a processor of their own.
        *(10, 310, 320, 36, 11, 324, 325, 12, 33, 34, 35, 46, 38, 14, 15, 37),
        # Taken by the default processor.
        *(17, 21, 25, 26, 28, 29, 30, 31, 32, 41, 42, 43, 45, 200, 201, 202, 203, 204, 207, 208),
        *(215, 222, 223, 300, 303, 305, 306, 307, 308, 309, 314, 315, 316, 317, 321, 323, 328, 329),
    }
)
BROKER_498: Final = _BOTH_BROKERS | {50, 51, 52, 53}
BROKER_533: Final = _BOTH_BROKERS | {
    *(361, 370, 400, 401, *range(200050, 200056), 200151),
    *(18, 60, 61, 225, 343, 345, *range(351, 356), 402, 513, 905, 906, 907, 908, 1007, 1008),
    *(*range(2001, 2005), *range(3001, 3011), 200056),
}
LITE: Final = frozenset({200070, 200071, *range(200074, 200080)})
BROKER_550: Final = BROKER_533 | LITE | {5001}
BROKER_551: Final = BROKER_550 | {5002, 5003}
NOT_ON_VIP: Final = frozenset({11, 361, 200070})
"""Not answered on the second port (listenPort - 2), by none of them."""

NAMESRV_498: Final = frozenset(
    {
        *range(100, 107),
        *(205, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327),
    }
)
NAMESRV_533: Final = NAMESRV_498 | {217, 901, 904}
NAMESRV_550: Final = NAMESRV_533

TO_CLIENTS_498: Final = frozenset({39, 40, 220, 221, 307, 309, 326})
TO_CLIENTS_533: Final = TO_CLIENTS_498
TO_CLIENTS_550: Final = TO_CLIENTS_533 | {200073}
"""What a broker asks of the clients that are connected to it."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Codes that one of the originals answers and ours does not. `name` stands in the table."""

    name: str
    codes: frozenset[int]
    reason: str


GAPS_498: Final[tuple[Gap, ...]] = ()
"""None: every code that a 4.9.8 broker or name server answers is answered."""

GAPS_533: Final[tuple[Gap, ...]] = ()
"""None: every code that a 5.3.3 broker or name server answers is answered."""

GAPS_550: Final[tuple[Gap, ...]] = ()
"""None: every code that a 5.5.0 broker or name server answers is answered."""

NOTES: Final[dict[int, str]] = {
    10: "answers transactionId as 5.3.3 does, where the message has a UNIQ_KEY; 310, 320 too",
    17: "attributes of 5.5 (docs/priority.md); COMPACTION with BatchCQ is refused",
    18: "as 17; for mqadmin updateTopicList of 5.x",
    21: "in pages to peers of 5.5; on the VIP port attributes as 5.3.2 and 5.3.3 read them",
    25: "an allow-list of keys (docs/settings.md)",
    37: "docs/transactions.md",
    54: "of older releases; ours gives no secrets",
    52: "without ACL 4.9.8 does not answer; ours says so",
    201: "in pages to peers of 5.5",
    200: "with the attributes of 5.5; a new name has 120 characters at most (29)",
    215: "that topic's queues only (docs/decisions/topics.md)",
    225: "as 200; for mqadmin updateSubGroupList of 5.x",
    314: "a slave refuses it, as 222",
    318: "an allow-list of keys (docs/settings.md)",
    320: "one record in a topic with queue.type=BatchCQ (docs/data_files.md)",
    343: "for mqadmin of 5.x",
    345: "for mqadmin of 5.x",
    351: "for mqadmin and proxies of 5.x, with attributes",
    352: "for mqadmin and proxies of 5.x",
    353: "topic by topic; read permission only, as there (docs/access.md)",
    354: "as a default 5.3.3 broker: a check is said to go on; there is no RocksDB to check",
    355: "as a default 5.3.3 broker: export done., and nothing is written: tables are JSON files",
    361: "a 5.x lite pull consumer's 11",
    370: "no SUCCESS while no replica has it (docs/timers.md)",
    905: "the name servers are asked what is true (docs/replication.md)",
    906: "docs/replication.md",
    907: "for mqadmin haStatus",
    3001: "3001 to 3010: docs/users_and_acls.md",
    **dict.fromkeys(range(2001, 2005), "docs/cold_data.md"),
    908: "for mqadmin resetMasterFlushOffset; kept in the checkpoint, shown by 907",
    1007: "epochs in controller mode; else code 1, as a default 5.3.3 broker",
    1008: "moves nothing: in controller mode the member asks the controllers' leader at once",
    200056: "as a default 5.3.3 broker: success, pop's state is in the file store",
    200070: "docs/lite_topics.md",
    200071: "docs/lite_topics.md",
    **dict.fromkeys(range(200074, 200080), "for mqadmin of 5.5 (docs/lite_topics.md)"),
    200054: "the filter of peers of 5.5 is applied, SQL92 too (docs/pop.md)",
    5001: "as a default 5.5.0 broker: timers are in files (F), and stay there (R: refused)",
    5002: "of 5.5.1: as 215, batchDeleteTopicMaxRate a second",
    5003: "of 5.5.1: as 207, batchDeleteSubscriptionGroupMaxRate a second",
    28906: "between brokers of ours (docs/replication.md)",
    28907: "between brokers of ours (docs/access.md)",
    28910: "for mqadmin verifyReplica (docs/operations.md)",
    28911: "between brokers of ours (docs/operations.md)",
    28912: "for consoles: history (docs/monitoring.md)",
    28913: "for consoles: metrics now (docs/monitoring.md)",
    28914: "for mqadmin adminAudit and consoles (docs/operations.md)",
}
"""What is worth knowing of a code that ours answers."""

UNUSED: Final[tuple[tuple[frozenset[int], str], ...]] = (
    (
        frozenset({13, 22, 23, 27, *range(209, 215)}),
        "left over in RocketMQ, answered by no program",
    ),
    (frozenset({301, 302}), "filter servers, which 4.x no longer has"),
    (frozenset({47}), "defined in 5.x, answered by no program"),
    (frozenset({200072}), "defined in 5.5, answered by no program: acks of lite topics are 200051"),
    (frozenset({902, 903}), "a broker container answers them, ours too (docs/container.md)"),
    (
        frozenset({*range(1001, 1007), *range(1009, 1014)}),
        "a controller answers them, `bin/mqcontroller` or RocketMQ's",
    ),
    (frozenset(range(1014, 1019)), "within a 5.x controller"),
)
"""Codes that are defined, and that neither a broker nor a name server answers."""
