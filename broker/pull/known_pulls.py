"""KnownPulls: the pull of a consumer that pulled the same queue before, on one straight way.

Runs on the loop thread of `remoting`. A consumer's pulls of a queue differ in their offsets only,
and whatever stands in a pull's way (topic, group, permissions, subscription, mode) is hardly ever
another than a moment ago. So what all checks together have let through is kept, with what they
looked at: the next pull is let through if each of these is still the same object or number. Then
its records are taken at once out of a block of units that was read and checked for an earlier one,
all of them or those with the tags that the group wants.
Whatever is different, and every pull that does not simply find messages, is PullMessageProcessor's,
which answers the same bytes: here nothing is decided, looked up in a file, corrected or refused.

A pull of 32 messages: 19 Python calls and 1,220 bytecodes from the frame to the socket; by the
general path 48 and 1,760 with fakes for tables and statistics, some 75 calls in a broker. Long and
plain for that (docs/STYLE.md, 12).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.filter.filter_factory import is_tag_type
from broker.filter.subscription_filter import MOST_KEPT
from broker.longpolling.pull_header import (
    FLAG_COMMIT_OFFSET,
    FLAG_SUBSCRIPTION,
    PullHeader,
    Wanted,
)
from broker.pull.pull_message_reader import PullMessageReader
from broker.pull.pull_parts import PullParts
from broker.pull.pull_settings import PullSettings
from broker.pull.pull_start import PROXY_FOR_BROADCAST
from broker.store_access.tagged_units import Found
from broker.store_access.unit_block import UnitBlock
from remoting.body.subscription_group_config import SubscriptionGroupConfig
from remoting.body.topic_config import TopicConfig
from remoting.connection import Connection
from remoting.errors import RequestError
from remoting.frame import AnswerTemplate
from remoting.request_code import RequestCode

_LIMIT: Final = 10_000
"""That are kept, some 300 bytes each and the expression; a broker with more begins anew."""
_AT_ONCE: Final = 4 << 10
"""Bytes: so much is sent before the turn is over, and its consumer works on it while the next pull
is read; the answers to small pulls of one connection are sent together."""
_PULL: Final = int(RequestCode.PULL_MESSAGE)
_FOUND: Final = 0


class KnownPull:
    """What the checks of a pull looked at. Owned by: the loop thread."""

    __slots__ = (
        "brings_expression",
        "codes",
        "expression",
        "expression_type",
        "group",
        "names",
        "revision",
        "row",
        "sub_version",
        "topic",
    )

    def __init__(
        self,
        header: PullHeader,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        revision: int,
        sub_version: int,
        row: int,
        codes: frozenset[int] | None,
    ) -> None:
        """revision: of the group's consumers. sub_version: of its subscription; a pull that brings
        its expression needs none. row: of the queue, in the queue table. codes: of the tags that
        are wanted; None: all messages are."""
        self.names: Final = (header.consumerGroup, header.topic)
        self.topic: Final = topic
        self.group: Final = group
        self.revision: Final = revision
        self.brings_expression: Final = bool(header.sysFlag & FLAG_SUBSCRIPTION)
        # Of others it is not looked at, and may be as long as a header.
        self.expression: Final = header.subscription if self.brings_expression else None
        self.expression_type: Final = header.expressionType if self.brings_expression else None
        self.sub_version: Final = sub_version
        self.row: Final = row
        self.codes: Final = codes


class KnownPulls:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        settings: PullSettings,
        parts: PullParts,
        check: Callable[[Connection, PullHeader], Wanted],
        reader: PullMessageReader,
    ) -> None:
        """check: all checks of a pull before its queue is read, and what it wants; raises
        RequestError."""
        self._settings = settings
        self._check = check
        self._find_topic = parts.find_topic
        self._find_group = parts.find_group
        self._consumers = parts.consumers
        self._is_readable = parts.is_readable
        self._table = parts.table
        self._units = parts.units
        self._reader = reader
        self._commit_offset = parts.commit_offset
        self._note_pull = parts.note_pull
        self._stats = parts.stats
        self._counts = parts.stats.pulls
        self._cold = parts.cold
        self._pulls: dict[tuple[str, str, int], KnownPull] = {}

    def use(self, settings: PullSettings) -> None:
        """Apply changed settings."""
        self._settings = settings
        self._pulls.clear()

    def note(self, connection: Connection, header: PullHeader) -> None:
        """Such a pull found a run of records in a queue with units, whose properties it did not
        look at: let through those that follow it. What they are compared with is taken before it is
        checked: what is changed meanwhile, by another thread, is then another one."""
        name, topic_name, queue_id = header.consumerGroup, header.topic, header.queueId
        consumers = self._consumers
        revision = consumers.revision(name)
        topic, group = self._find_topic(topic_name), self._find_group(name)
        row = self._table.find_row(topic_name, queue_id)
        if topic is None or group is None or row is None or consumers.is_broadcasting(name):
            return
        try:
            codes, properties = self._check(connection, header)
        except RequestError:
            return
        if properties is not None:
            return
        sub_version = 0
        if header.sysFlag & FLAG_SUBSCRIPTION:
            if not is_tag_type(header.expressionType):
                return
            if len(header.subscription or "") > MOST_KEPT:
                return
        else:
            subscription = consumers.find_subscription(name, topic_name)
            if subscription is None:
                return
            sub_version = subscription.sub_version
        if len(self._pulls) >= _LIMIT:
            self._pulls.clear()
        known = KnownPull(header, topic, group, revision, sub_version, row, codes)
        self._pulls[name, topic_name, queue_id] = known

    def answer(
        self,
        connection: Connection,
        header: PullHeader,
        code: int,
        opaque: int,
        template: AnswerTemplate,
    ) -> bool:
        """Whether it was answered; if not, nothing has happened. Not for static topics. code: of
        the request. template: of the answer, in the form of the pull."""
        name, topic, queue_id = header.consumerGroup, header.topic, header.queueId
        reader = name, topic, queue_id
        known = self._pulls.get(reader)
        if known is None:
            return False
        # First what most of those fail at that fail: the queue's end, and a new block.
        offset, count = header.queueOffset, header.maxMsgNums
        low, high, generation = self._table.state(known.row)
        if not low <= offset < high:
            return False
        if count < 1:
            count = 1
        settings, codes = self._settings, known.codes
        block: UnitBlock | None = None
        tagged: Found | None = None
        if codes is None:
            if count > high - offset:
                count = high - offset
            block = self._units.find_block(topic, queue_id, offset, count, generation)
        else:
            tagged = self._reader.find_tagged(reader, offset, count, codes, generation, settings)
        if block is None and tagged is None:
            return False
        if (
            header.requestSource == PROXY_FOR_BROADCAST
            or self._find_topic(topic) is not known.topic
            or self._find_group(name) is not known.group
            or self._consumers.revision(name) != known.revision
            or ((cold := self._cold) is not None and cold.enabled)
        ):
            return False
        flags = header.sysFlag
        if flags & FLAG_SUBSCRIPTION:
            if (
                not known.brings_expression
                or header.subscription != known.expression
                or header.expressionType != known.expression_type
            ):
                return False
        elif (
            known.brings_expression
            or header.subVersion > known.sub_version
            or not self._is_readable(name, topic)
        ):
            return False
        if block is not None:
            run = self._reader.take_run(block, offset, count, settings)
            if run is None:
                return False
            pieces, size, count, slow = run
            following = offset + count
        else:
            assert tagged is not None
            taken = self._reader.take_tagged(tagged, count, settings)
            if taken is None:
                return False
            pieces, size, count, slow, following = taken
        # From here on it is answered.
        name, topic = names = known.names
        if flags & FLAG_COMMIT_OFFSET and settings.commits_offsets:
            remote = connection.remote_address
            self._commit_offset(remote, name, topic, queue_id, header.commitOffset)
        if code == _PULL:
            counts = self._counts
            counts.answered += 1
            counted = counts.found.get(names)
            if counted is None:
                counted = counts.found[names] = [0, 0, 0]
            counted[0] += 1
            counted[1] += count
            counted[2] += size
        else:
            self._stats.add_answers(code, _FOUND)
            self._stats.add_get(name, topic, count, size)
        suggested = 0
        if settings.slave_read_enable:
            group = known.group
            suggested = group.which_broker_when_consume_slowly if slow else group.broker_id
        self._note_pull(name, topic, queue_id, following)
        values = (_FOUND, suggested, following, low, high, opaque, b"FOUND")
        head = template.render(values, size)
        pieces.insert(0, head)
        if size < _AT_ONCE:
            connection.write_many(pieces, len(head) + size)
        else:
            connection.send_now(pieces, len(head) + size)
        return True
