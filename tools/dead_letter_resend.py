"""Resends dead letters: one message after the other, each with its result and its audit line.

A generator of steps, so that its caller shows progress and stops between two messages. Runs in the
command's main thread, or in the thread of a console's job. What is promised:

- Only a letter whose send was answered SEND_OK counts as resent. FLUSH_DISK_TIMEOUT and its like
  mean that a broker stored it, but not as safely as it should be; after a time out nobody knows.
  Both count as not resent and say so; sending them again may make a second copy.
- Before each send the audit file says so: a run that is killed before it has the result leaves a
  letter of which nobody knows. It is sent again, as one whose send timed out, and its step says so.
- What the audit file says was resent is not sent again unless that is asked for. A letter stays
  where it is (a log takes nothing out): without that file it is sent again.
- A copy has the body, the flag and the properties that its sender wrote, and so its unique key: it
  is the same message for consumers that compare these. It goes to every group of its topic, unless
  the group's own retry topic is named as target.

Tested by tests/tools/test_dead_letter_resend.py.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from remoting.body.client_connection import GroupList
from remoting.errors import RemotingConnectError
from remoting.headers.topic import QueryTopicConsumeByWhoRequestHeader
from remoting.request_code import RequestCode
from tools.admin_client import DLQ_PREFIX, RETRY_PREFIX, AdminClient
from tools.broker_members import BrokerMembers
from tools.dead_letters import DeadLetter, Read, Unread
from tools.errors import AdminError, BrokerAnswerError
from tools.message_decoder import COMPRESSED, COMPRESSION_MASK
from tools.message_finder import PEER_ERRORS
from tools.message_sender import MessageSender, OutgoingMessage
from tools.resend_audit import SEND_OK, SENDING, UNKNOWN, AuditLine, LetterKey, ResendAudit

ALREADY_RESENT: Final = "ALREADY_RESENT"
"""The audit file says so; nothing was sent."""
NOT_FOUND: Final = "NOT_FOUND"
"""There is no such letter, or a queue could not be read."""
NO_TARGET: Final = "NO_TARGET"
"""Its topic is unknown, gone, or none that messages may be sent to."""
REFUSED: Final = "REFUSED"
"""The broker refused it, or could not be reached: it is stored nowhere."""
MOST_FAILURES: Final = 10
"""After so many sends in a row that do not count the run ends: the next ones would fare the same,
and what was stored all the same would be stored twice by the next run."""
_RETRY_LIMIT: Final = 16
"""Sent to a retry topic, it is consumed at least once, whatever the group's own limit."""
_SECOND_COPY: Final = "an earlier run ended without its result: this may be the second copy"
_NOT_AS_SAFE: Final = "stored, but not as safely as it should be; once more makes a second copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResendOrder:
    """What is wanted, and by whom. to_topic: instead of each letter's own; rate: messages a second
    at most; again: also those that the audit file says were resent."""

    group: str
    who: str
    origin: str
    to_topic: str | None = None
    rate: float | None = None
    again: bool = False

    def __post_init__(self) -> None:
        if self.rate is not None and not self.rate > 0:
            raise AdminError(f"a rate of {self.rate} messages a second resends nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResendStep:
    """What happened to one letter, or to an id or a queue without one."""

    what: str
    """The letter's id; else the id that was asked for, or the queue."""
    msg_id: str | None = None
    topic: str | None = None
    result: str
    """A send status of RocketMQ, or one of this module's words."""
    reason: str | None = None
    new_msg_id: str | None = None

    @property
    def is_resent(self) -> bool:
        """Whether it counts."""
        return self.result == SEND_OK

    def to_json(self) -> dict[str, Any]:
        """The step for programs."""
        return {
            "letterId": self.what,
            "msgId": self.msg_id,
            "topic": self.topic,
            "result": self.result,
            "reason": self.reason,
            "newMsgId": self.new_msg_id,
        }


@dataclass(slots=True)
class ResendCount:
    """Steps so far."""

    resent: int = 0
    already_resent: int = 0
    not_resent: int = 0

    def add(self, step: ResendStep) -> None:
        """Count one more."""
        if step.is_resent:
            self.resent += 1
        elif step.result == ALREADY_RESENT:
            self.already_resent += 1
        else:
            self.not_resent += 1

    @property
    def total(self) -> int:
        """All steps."""
        return self.resent + self.already_resent + self.not_resent

    def __str__(self) -> str:
        parts = [f"{self.resent} resent"]
        if self.already_resent:
            parts.append(f"{self.already_resent} resent before")
        if self.not_resent:
            parts.append(f"{self.not_resent} not resent")
        return ", ".join(parts)


@dataclass(slots=True)
class _Pace:
    """Waits until the next message is due. Owned by: the thread that resends."""

    rate: float | None
    wait: Callable[[float], bool]
    clock: Callable[[], float]
    _due: float = field(default=0.0, init=False)

    def is_stopped(self) -> bool:
        """True when the wait was ended."""
        if self.rate is None:
            return False
        now = self.clock()
        pause, self._due = self._due - now, max(self._due, now) + 1 / self.rate
        return pause > 0 and self.wait(pause)


def resend(
    admin: AdminClient,
    letters: Iterable[Read],
    order: ResendOrder,
    audit: ResendAudit,
    *,
    wait: Callable[[float], bool],
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[ResendStep]:
    """Send them again, a step for each; the next one goes when the next step is asked for. wait:
    sleeps until the rate allows the next message; True stops. Raises AdminError after too many
    failures in a row, when a line of the audit cannot be written, and when another run resends this
    group's letters."""
    audit.hold(order.group)
    told = audit.told(order.group)
    before = {} if order.again else told.resent
    run = _Run(admin, order, audit, _Pace(order.rate, wait, clock))
    run.unsure = told.unsure.keys()
    for letter in letters:
        if isinstance(letter, Unread):
            yield ResendStep(what=letter.what, result=NOT_FOUND, reason=letter.reason)
        elif (line := before.get(letter_key(letter))) is not None:
            yield _resent_before(letter, line)
        else:
            step = run.resend(letter)
            if step is None:
                return
            yield step
            run.check_failures(step)


def letter_key(letter: DeadLetter) -> LetterKey:
    """What the audit file knows a letter by."""
    return letter.letter_id, letter.message.store_timestamp


def _resent_before(letter: DeadLetter, line: AuditLine) -> ResendStep:
    reason = f"by {line.who} from {line.origin}"
    return _step(letter, line.topic, ALREADY_RESENT, reason, line.new_msg_id)


class _Run:
    """One run's senders and its counting. Owned by: the thread that resends."""

    def __init__(
        self, admin: AdminClient, order: ResendOrder, audit: ResendAudit, pace: _Pace
    ) -> None:
        self._admin = admin
        self._order = order
        self._audit = audit
        self._pace = pace
        self._own_retry_topic = RETRY_PREFIX + order.group
        self._senders: dict[str, MessageSender | str] = {}
        self._failures = 0
        self.unsure: Collection[LetterKey] = ()
        """Which letters an earlier run may have sent."""

    def resend(self, letter: DeadLetter) -> ResendStep | None:
        """One letter, and its line in the audit; None: stopped before it was sent."""
        topic = self._order.to_topic or letter.origin_topic
        sender = self._sender(topic)
        if isinstance(sender, str):
            step = _step(letter, topic, NO_TARGET, sender)
        elif self._pace.is_stopped():
            return None
        else:
            step = _step(letter, topic, UNKNOWN, "interrupted: it may have been stored")
            self._note(letter, _step(letter, topic, SENDING, None))
            try:
                step = self._send(letter, sender, topic or "")
            finally:
                self._note(letter, step)
            return step
        self._note(letter, step)
        return step

    def check_failures(self, step: ResendStep) -> None:
        """AdminError after too many sends that do not count."""
        if step.is_resent:
            self._failures = 0
        elif step.result != NO_TARGET:
            self._failures += 1
        if self._failures >= MOST_FAILURES:
            raise AdminError(f"stopped after {MOST_FAILURES} failures in a row: {step.reason}")

    # -- where it goes -------------------------------------------------------------------------

    def _sender(self, topic: str | None) -> MessageSender | str:
        """A sender to a topic, or why there is none."""
        if topic is None:
            return "no property names the topic that it came from: name one"
        if topic not in self._senders:
            try:
                self._senders[topic] = self._open(topic)
            except PEER_ERRORS as error:
                self._senders[topic] = str(error)
        return self._senders[topic]

    def _open(self, topic: str) -> MessageSender | str:
        """A topic is not created: nobody would consume what is sent there. And a letter's word is
        not enough: whoever may write to the group's dead-letter topic could name any topic."""
        if topic.startswith(DLQ_PREFIX):
            return f"{topic} is for dead letters"
        if topic.startswith(RETRY_PREFIX) and topic != self._own_retry_topic:
            return f"{topic} is not the retry topic of group {self._order.group}"
        if self._order.to_topic is None and not self._consumes(topic):
            return (
                f"group {self._order.group} does not consume topic {topic}: name it to send there"
            )
        return MessageSender(self._admin, topic, may_create=False)

    def _consumes(self, topic: str) -> bool:
        """Whether a broker knows the group as a consumer of the topic, online or not."""
        header = QueryTopicConsumeByWhoRequestHeader(topic=topic)
        members = BrokerMembers(self._admin, self._admin.route(topic))
        for name in members.names():
            answer = members.ask(name, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
            if self._order.group in GroupList.from_json_bytes(answer.body).group_list:
                return True
        return False

    # -- sending -------------------------------------------------------------------------------

    def _send(self, letter: DeadLetter, sender: MessageSender, topic: str) -> ResendStep:
        outgoing = self._outgoing(letter, topic)
        try:
            result = sender.send_message(outgoing, secrets.choice(sender.queues))
        except (BrokerAnswerError, RemotingConnectError) as error:
            return _step(letter, topic, REFUSED, str(error))
        except PEER_ERRORS as error:
            return _step(letter, topic, UNKNOWN, f"it may have been stored: {error}")
        reason = _SECOND_COPY if letter_key(letter) in self.unsure else None
        reason = reason if result.send_status == SEND_OK else _NOT_AS_SAFE
        return _step(letter, topic, result.send_status, reason, result.offset_msg_id)

    def _outgoing(self, letter: DeadLetter, topic: str) -> OutgoingMessage:
        """The copy: its own properties, and the stored bytes of its body."""
        message = letter.message
        if len(message.stored_body) != message.stored_body_size:
            raise ValueError(f"only the beginning of {letter.letter_id} was read")
        properties = letter.own_properties()
        limit = None
        if topic == self._own_retry_topic:
            # Consumers show their listener this topic, and take the message for a retry.
            properties["RETRY_TOPIC"] = letter.origin_topic or topic
            limit = _RETRY_LIMIT
        return OutgoingMessage(
            body=message.stored_body,
            properties=properties,
            flag=message.flag,
            sys_flag=message.sys_flag & (COMPRESSED | COMPRESSION_MASK),
            max_reconsume_times=limit,
        )

    def _note(self, letter: DeadLetter, step: ResendStep) -> None:
        self._audit.add(
            AuditLine(
                time_ms=self._admin.now_ms(),
                who=self._order.who,
                origin=self._order.origin,
                group=self._order.group,
                letter_id=letter.letter_id,
                stored_ms=letter.message.store_timestamp,
                msg_id=letter.message.msg_id,
                topic=step.topic,
                result=step.result,
                reason=step.reason,
                new_msg_id=step.new_msg_id,
            )
        )


def _step(
    letter: DeadLetter,
    topic: str | None,
    result: str,
    reason: str | None,
    new_msg_id: str | None = None,
) -> ResendStep:
    return ResendStep(
        what=letter.letter_id,
        msg_id=letter.message.msg_id,
        topic=topic,
        result=result,
        reason=reason,
        new_msg_id=new_msg_id,
    )
