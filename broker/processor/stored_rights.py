"""The rights that a request needs on a message that it names by its place (33, 36, 37, 309).

Such a request does not say whose message it is, or could lie, so the request guard cannot judge it:
the processor reads the message and then asks. Any thread. A message that waits in a topic of the
broker's own (delayed, timed, half) belongs to the topic that it waits for; the broker's own records
there (pop's check points, the marks of ended transactions) to nobody but operators. Knows no
account; without ACL nothing is asked for.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.acl.access_resources import Resources
from broker.acl.permission import Permission, is_group
from broker.append.diverted_messages import home_of
from broker.topic.system_topics import is_internal_topic
from remoting.errors import RequestError
from remoting.key_builder import parse_normal_topic
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.signature import ACCESS_KEY
from store.message import Message

StoredRights = Callable[[ConnectionLike, RemotingCommand, Resources], None]
"""RequestGuard.check_resources: raises RequestError if the request's account lacks a right."""


def everybody(_connection: ConnectionLike, _request: RemotingCommand, _needed: Resources) -> None:
    """StoredRights of a broker that has no accounts."""


def to_read(message: Message) -> Resources:
    """What looking at it needs (33, 309): SUB on its topic, on the real one while it waits."""
    home = home_of(message.properties) if is_internal_topic(message.topic) else None
    return {message.topic if home is None else home[0]: Permission.SUB}


def to_send_back(message: Message, group: str) -> Resources:
    """What consuming it again in `group` needs (36): as `to_read`. No consumer was given one that
    waits, so that also needs SUB on the topic in which it waits: an operator's. The group's own pop
    retry topic stands for the topic that it is of, as in the pop that gave it out."""
    topic = parse_normal_topic(message.topic, group)
    if topic != message.topic:
        return {topic: Permission.SUB}
    return {message.topic: Permission.SUB} | to_read(message)


def to_end(half: Message) -> Resources:
    """What ending its transaction needs: PUB on the topic that it was sent to (SUB on a retry
    topic, as for a send)."""
    home = home_of(half.properties)
    if home is None:
        return {half.topic: Permission.PUB}
    return {home[0]: Permission.SUB if is_group(home[0]) else Permission.PUB}


def judge_of_ends(rights: StoredRights) -> Callable[[ConnectionLike, str, Message], bool]:
    """Whether an account, at a connection, may end a half's transaction: who may not is not asked
    about it (39), since that shows the message."""

    def may_end(connection: ConnectionLike, account: str, half: Message) -> bool:
        request = RemotingCommand(RequestCode.END_TRANSACTION, ext_fields={ACCESS_KEY: account})
        try:
            rights(connection, request, to_end(half))
        except RequestError:
            return False
        return True

    return may_end
