"""sendMessage: one message, and where it went. (Java: SendMessageCommand.)"""

from __future__ import annotations

import secrets
from typing import Annotated, Final

import click

from remoting.body.message_queue import MessageQueue
from tools.admin_client import AdminClient
from tools.command_line import command, print_error
from tools.message_sender import MessageSender
from tools.options import FLAG, NATURAL, Topic
from tools.report import Column, Report, columns, table

COLUMNS: Final = columns(
    "#Broker Name brokerName | #QID queueId | #Send Result sendStatus | #MsgId msgId"
)
DURABILITY = Column("#Durability", "durability")


@command("sendMessage")
def send_message(
    admin: AdminClient,
    *,
    topic: Topic,
    body: Annotated[str, "-p --body", "The body, sent as UTF-8."],
    keys: Annotated[str | None, "-k --key", "Message keys, separated by spaces."],
    tags: Annotated[str | None, "-c --tags", "Message tag."],
    broker_name: Annotated[str | None, "-b --broker", "Name of the broker to send to."],
    queue_id: Annotated[int | None, "-i --qid", "Queue to send to.", NATURAL],
    trace: Annotated[bool, "-m --msgTraceEnable", "Accepted; nothing is traced."] = False,
    asks_durability: Annotated[
        bool,
        "--durability",
        "Ask the broker what was achieved, and show it (docs/send_durability.md).",
        FLAG,
    ],
) -> Report:
    """Send one message; without -b and -i to any queue."""
    if queue_id is not None and broker_name is None:
        raise click.UsageError("-i QUEUE needs the broker's name too: -b NAME")
    if trace:
        print_error("sendMessage", "-m true: this tool sends no traces; the message is not traced")
    sender = MessageSender(admin, topic)
    queue = _choose(sender, topic, broker_name, queue_id)
    result = sender.send(
        body.encode(), queue, tags=tags, keys=keys, asks_durability=asks_durability
    )
    row = (result.queue.broker_name, result.queue.queue_id, result.send_status, result.msg_id)
    if not asks_durability:
        return Report(table(COLUMNS, [row]).text, result.to_json())
    found = result.durability or "the broker does not say"
    return Report(table((*COLUMNS, DURABILITY), [(*row, found)]).text, result.to_json())


def _choose(
    sender: MessageSender, topic: str, broker_name: str | None, queue_id: int | None
) -> MessageQueue:
    if broker_name is None:
        return secrets.choice(sender.queues)
    queues = sender.queues_of(broker_name)
    if queue_id is None:
        return secrets.choice(queues)
    return MessageQueue(broker_name=broker_name, queue_id=queue_id, topic=topic)
