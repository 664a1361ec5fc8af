"""Durability of a sent message: a field in the answer to a send, for those who ask. Ours.

The status of an answer says whether what the settings wait for was achieved; this says what was
achieved when the answer was written, whatever they wait for. Pure data, any thread.

    request   reportDurability  "true": the answer shall have the fields below
    answer    durability        names of Durability, joined by ","; with codes 0, 10, 11 and 12
              replicas          with REPLICATED: at least so many replicas (decimal)

RocketMQ's brokers ignore the field of the request, its clients those of the answer; without the
request's field the answer has RocketMQ's bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

REPORT_DURABILITY: Final = "reportDurability"
DURABILITY: Final = "durability"
REPLICAS: Final = "replicas"
_TRUE: Final = "true"


class Durability(enum.Flag):
    """What a message has outlived so far; each includes nothing of the others but MEMORY."""

    MEMORY = enum.auto()
    """It is in the master's log, in the page cache: it outlives every process, not the machine."""
    FLUSHED = enum.auto()
    """fdatasync of the master's log file has returned after it was written."""
    REPLICATED = enum.auto()
    """Enough connected slaves have acknowledged it, each with what its haAckLevel means (received:
    it is in that machine's page cache). Enough: inSyncReplicas - 1, at least one."""
    REPLICA_FLUSHED = enum.auto()
    """As many of those slaves are of ours and have haAckLevel=flushed: it is on their disks."""

    @property
    def text(self) -> str:
        """The value of the field."""
        return ",".join(member.name or "" for member in self)


def asks_for_durability(fields: Mapping[str, str]) -> bool:
    """Whether a send's ext fields ask for it."""
    return fields.get(REPORT_DURABILITY) == _TRUE


def ask_for_durability() -> dict[str, str]:
    """The ext field of a request."""
    return {REPORT_DURABILITY: _TRUE}


def durability_fields(durability: Durability, replicas: int) -> dict[str, str]:
    """The ext fields of an answer; replicas: how many REPLICATED speaks of."""
    fields = {DURABILITY: durability.text}
    if Durability.REPLICATED in durability:
        fields[REPLICAS] = str(replicas)
    return fields


def read_durability(fields: Mapping[str, str]) -> Durability | None:
    """What an answer says; None: nothing (the broker is RocketMQ's, or older). Names that are not
    known are left out."""
    text = fields.get(DURABILITY)
    if text is None:
        return None
    names = Durability.__members__
    found = Durability(0)
    for name in text.split(","):
        found |= names.get(name.strip(), Durability(0))
    return found
