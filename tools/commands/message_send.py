"""sendMessage: one message, and where it went. (Java: SendMessageCommand.)"""

from __future__ import annotations

import secrets

import click

from remoting.body.message_queue import MessageQueue
from tools.admin_client import AdminClient
from tools.command_line import command, print_error
from tools.message_sender import MessageSender
from tools.report import Column, Report, table

COLUMNS = (
    Column("#Broker Name", "brokerName"),
    Column("#QID", "queueId"),
    Column("#Send Result", "sendStatus"),
    Column("#MsgId", "msgId"),
)
DURABILITY = Column("#Durability", "durability")


@command("sendMessage")
@click.option("-t", "--topic", required=True, help="Topic name.")
@click.option("-p", "--body", required=True, help="The body, sent as UTF-8.")
@click.option("-k", "--key", "keys", help="Message keys, separated by spaces.")
@click.option("-c", "--tags", help="Message tag.")
@click.option("-b", "--broker", "broker_name", help="Name of the broker to send to.")
@click.option("-i", "--qid", "queue_id", type=click.IntRange(0), help="Queue to send to.")
@click.option(
    "-m", "--msgTraceEnable", "trace", type=bool, default=False, help="Accepted; nothing is traced."
)
@click.option(
    "--durability",
    "asks_durability",
    is_flag=True,
    help="Ask the broker what was achieved, and show it (docs/send_durability.md).",
)
def send_message(
    admin: AdminClient,
    topic: str,
    body: str,
    keys: str | None,
    tags: str | None,
    broker_name: str | None,
    queue_id: int | None,
    trace: bool,
    asks_durability: bool,
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
