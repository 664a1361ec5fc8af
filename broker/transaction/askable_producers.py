"""AskableProducers: which connected producer is asked about a half message (39).

Used by the thread of TransactionalMessageCheckService. With access control anybody may say that it
belongs to a producer group, and a check hands over the whole message: only a connection whose
account may end the half's transaction, which takes the right to publish to its topic, is asked. The
candidates for a group and a topic are looked for once a round, so a crowd of others costs no half
more than that; the chosen one is judged again. (RocketMQ asks any connection of the group.)
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Final

from broker.client.client_channel_info import ClientChannelInfo
from broker.client.producer_manager import ProducerManager
from remoting.request_processor import ConnectionLike
from store.message import Message

MayEnd = Callable[[ConnectionLike, str, Message], bool]
"""Whether an account, at a connection, may now end the transaction of a half."""


class AskableProducers:
    """See the module. Owned by: the thread of the check service."""

    def __init__(self, producers: ProducerManager, may_end: MayEnd) -> None:
        self._producers = producers
        self._may_end = may_end
        self._candidates: dict[tuple[str, str], list[ClientChannelInfo]] = {}
        """By group and topic, in this round."""
        self._turns = itertools.count()
        self.nobody: Final[Counter[str]] = Counter()
        """Halves of this round without a connected producer, by producer group."""
        self.no_rights: Final[Counter[tuple[str, str]]] = Counter()
        """Those whose connected producers may not publish to their topic, by group and topic."""

    def begin_round(self) -> None:
        """Who is connected, and what he may do, is looked at anew."""
        self._candidates.clear()
        self.nobody.clear()
        self.no_rights.clear()

    def find(self, group: str, topic: str, half: Message) -> ConnectionLike | None:
        """An open connection to ask about a half of `topic`, in turns; None: it is counted why."""
        key = group, topic
        found = self._candidates.get(key)
        if found is None:
            members = self._producers.find_group(group) or ()
            found = [each for each in members if self._judge(each, half)]
            if members and not found:
                self.no_rights[key] = 0
            self._candidates[key] = found
        start = next(self._turns)
        for step in range(len(found)):
            member = found[(start + step) % len(found)]
            if member.connection.is_open and self._judge(member, half):
                return member.connection
        if key in self.no_rights:
            self.no_rights[key] += 1
        else:
            self.nobody[group] += 1
        return None

    def _judge(self, member: ClientChannelInfo, half: Message) -> bool:
        return self._may_end(member.connection, member.account, half)
