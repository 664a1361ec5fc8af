"""Permission: what an account may do with a topic or a group. Pure data, any thread.

Java: org.apache.rocketmq.acl.common.Permission. A group's rights are kept under the name of its
retry topic, as there.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Final

from broker.topic.system_topics import RETRY_GROUP_TOPIC_PREFIX


class Permission(IntFlag):
    """Bits of the original. Needed are PUB, SUB or ANY (one of the two); owned are the others."""

    DENY = 1
    ANY = 2
    PUB = 4
    SUB = 8


_DENY: Final = int(Permission.DENY)
_ANY: Final = int(Permission.ANY)
_EITHER: Final = int(Permission.PUB | Permission.SUB)
"""Plain numbers: each & of two flags costs a microsecond, and this is on the way of every send."""

PERMISSIONS: Final = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}
"""The words of the file."""


def parse_permission(text: str | None) -> Permission:
    """What the word means; every other word, and none, is DENY as in the original."""
    return PERMISSIONS.get((text or "").strip(), Permission.DENY)


def suffices(owned: Permission, needed: Permission) -> bool:
    """Whether `owned` covers `needed`."""
    bits, needed_bits = int(owned), int(needed)
    if bits & _DENY:
        return False
    return bool(bits & (_EITHER if needed_bits & _ANY else needed_bits))


def is_group(resource: str) -> bool:
    """Whether it stands for a group: its retry topic."""
    return resource.startswith(RETRY_GROUP_TOPIC_PREFIX)


def shown(resource: str) -> str:
    """ "topic:t" or "group:g", as the original's remarks name a resource."""
    if is_group(resource):
        return f"group:{resource.removeprefix(RETRY_GROUP_TOPIC_PREFIX)}"
    return f"topic:{resource}"
