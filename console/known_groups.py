"""Which consumer groups there are: those in the tables of the masters (201).

A group without a retry topic (pop, broadcasting, or one that was only created) is known so, and the
retry topic of a pop is no group. Of masters that do not tell, the retry topics that the name server
lists stand in. Any thread; a table is read where it arrives, once, and only its names are kept.

Tested by tests/console/test_groups_view.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

from console.lanes import Question
from console.page import Reader
from console.questions import tree_of
from console.replies import MOST_AT_ONCE, ask_all
from remoting.request_code import RequestCode
from tools.admin_client import RETRY_PREFIX, AdminClient
from tools.commands.export import is_system_group

AGE_MS: Final = 60_000
"""The table has a line for each group: it is not asked for more often."""
MOST_GROUPS: Final = 20_000
"""Of one broker's table; the rest is left out."""
MOST_TOKENS: Final = 1_000_000
NAME_BYTES: Final = 80
"""Of a kept name, beside its characters."""
MAX_NAME: Final = 255
"""No group has a longer one."""


@dataclass(frozen=True, slots=True)
class KnownGroups:
    """Names, sorted, and of how many masters the table is not known."""

    names: tuple[str, ...]
    untold: int = 0


def _names(client: AdminClient, address: str) -> frozenset[str]:
    body = client.call(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
    tree = tree_of(body, MOST_TOKENS, f"broker {address}: its groups")
    table = tree.get("subscriptionGroupTable") if isinstance(tree, dict) else None
    names = table if isinstance(table, dict) else {}
    return frozenset(islice((name for name in names if 0 < len(name) <= MAX_NAME), MOST_GROUPS))


def _size(names: frozenset[str]) -> int:
    return sum(map(len, names)) + NAME_BYTES * len(names)


GROUPS_OF: Final = Question("groups", _names, size_of=_size)


def known_groups(
    reader: Reader, *, with_system: bool = False, is_later: bool = False
) -> KnownGroups:
    """All groups. RocketMQ's own only `with_system`. `is_later`: without waiting for a broker."""
    asked = [(broker.place.address, GROUPS_OF) for broker in reader.snapshot.masters()]
    is_later = is_later or len(asked) > MOST_AT_ONCE
    answers = ask_all(reader, asked, AGE_MS, is_later=is_later)
    told: set[str] = set()
    for answer in answers:
        told |= answer.value or frozenset()
    untold = sum(answer.value is None for answer in answers)
    names = told | _by_retry_topics(reader, told) if untold or not asked else told
    wanted = names if with_system else (name for name in names if not is_system_group(name))
    return KnownGroups(tuple(sorted(wanted)), untold)


def _by_retry_topics(reader: Reader, told: set[str]) -> set[str]:
    """Groups that a retry topic is named after. A pop has one for each topic: %RETRY%group+topic,
    or %RETRY%group_topic, which a group may be called, too: it is none if both parts are known."""
    topics = set(reader.snapshot.topics.value or ())
    retry = {
        topic[len(RETRY_PREFIX) :]
        for topic in topics
        if topic.startswith(RETRY_PREFIX) and len(topic) <= MAX_NAME
    }
    known = retry | told
    return {
        name
        for name in retry
        if "+" not in name
        and not any(
            name[:at] in known and name[at + 1 :] in topics
            for at, char in enumerate(name)
            if char == "_"
        )
    }
