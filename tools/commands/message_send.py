"""Sends: sendMessage, and the latency of sends: checkMsgSendRT, clusterRT, sendMsgStatus.

These store real messages. (Java: SendMessageCommand, CheckMsgSendRTCommand,
CLusterSendMsgRTCommand, SendMsgStatusCommand.)
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterator
from typing import Annotated, Final

import click

from remoting.body.message_queue import MessageQueue
from remoting.errors import RemotingError, RequestError
from tools.admin_client import MASTER_ID, AdminClient, BrokerAddress
from tools.command_line import command, print_error
from tools.errors import AdminError
from tools.message_sender import MessageSender
from tools.message_text import second_text
from tools.options import FLAG, NATURAL, POSITIVE, Topic
from tools.report import Cell, Column, Report, columns, heading_report, row_report, table

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


COMMAND_ERRORS: Final = (AdminError, RemotingError, RequestError)
SEND_COLUMNS: Final = (
    Column("#Broker Name", "brokerName", width=24),
    Column("#QID", "queueId"),
    Column("#Send Result", "success"),
    Column("#RT", "rt"),
)
CLUSTER_COLUMNS: Final = columns(
    "#Cluster Name clusterName | #Broker Name brokerName | #RT rt > | "
    "#successCount successCount > | #failCount failCount >"
)
FILLING: Final = b"a"

_Amount = Annotated[int, "-a --amount", "Number of messages [100].", POSITIVE]
_Size = Annotated[int, "-s --size", "Bytes each [128].", POSITIVE]


@command("checkMsgSendRT")
def check_msg_send_rt(
    admin: AdminClient, topic: Topic, amount: _Amount = 100, size: _Size = 128
) -> Iterator[Report]:
    """Send to the queues in turn; one row for each message, then the average."""
    return _check(MessageSender(admin, topic), amount, FILLING * size)


def _check(sender: MessageSender, amount: int, body: bytes) -> Iterator[Report]:
    yield heading_report(SEND_COLUMNS)
    times = []
    for queue in itertools.islice(itertools.cycle(sender.queues), amount):
        start = _clock_ms()
        try:
            sender.send(body, queue)
            success = True
        except COMMAND_ERRORS as error:
            print_error("checkMsgSendRT", error)
            success = False
        times.append(_clock_ms() - start)
        time_ms = Cell(f"{round(times[-1])}", round(times[-1], 3))
        sent = Cell(str(success).lower(), success)
        yield row_report(SEND_COLUMNS, (queue.broker_name, queue.queue_id, sent, time_ms))
    yield Report(f"Avg RT: {_average(times):.2f}")


def _clock_ms() -> float:
    return time.monotonic_ns() / 1e6


def _average(times: list[float]) -> float:
    """Without the first send, which includes connecting, unless it is the only one."""
    counted = times[1:] or times
    return sum(counted) / len(counted)


@command("clusterRT")
def cluster_rt(
    admin: AdminClient,
    *,
    amount: _Amount = 100,
    size: _Size = 128,
    cluster: Annotated[str | None, "-c --cluster", "Cluster name; all clusters without it."],
    as_log: Annotated[bool, "-p --print", "One |-separated line each."] = False,
    room: Annotated[str, "-m --machine", "Machine room, for -p true."] = "noname",
) -> Report:
    """Send to the system topic of each master and average the times."""
    masters = [broker for broker in admin.brokers(cluster) if broker.broker_id == MASTER_ID]
    rows = [_measure(admin, master, amount, FILLING * size) for master in masters]
    found = table(
        CLUSTER_COLUMNS, [(*row[:2], Cell(f"{row[2]:.2f}", row[2]), *row[3:]) for row in rows]
    )
    if not as_log:
        return found
    now = second_text(admin.now_ms())
    lines = [f"{now}|{room}|{name}|{broker}|{round(rt)}" for name, broker, rt, _, _ in rows]
    return Report("\n".join(lines), found.data)


def _measure(
    admin: AdminClient, master: BrokerAddress, amount: int, body: bytes
) -> tuple[str, str, float, int, int]:
    sender = MessageSender(admin, master.broker_name)
    queues = sender.queues_of(master.broker_name)
    times, failed = [], 0
    for queue in itertools.islice(itertools.cycle(queues), amount):
        start = _clock_ms()
        try:
            sender.send(body, queue)
        except COMMAND_ERRORS as error:
            failed += 1
            if failed == 1:
                print_error("clusterRT", error)
        times.append(_clock_ms() - start)
    average = _average(times)
    return master.cluster, master.broker_name, average, amount - failed, failed


@command("sendMsgStatus")
def send_msg_status(
    admin: AdminClient,
    broker_name: Annotated[str, "-b --brokerName", "Broker name."],
    size: Annotated[int, "-s --messageSize", POSITIVE] = 128,
    count: Annotated[int, "-c --count", POSITIVE] = 50,
) -> Iterator[Report]:
    """Send to the system topic of one broker; one line for each message."""
    sender = MessageSender(admin, broker_name)
    return _send_status(sender, broker_name, FILLING * size, count)


def _send_status(
    sender: MessageSender, broker_name: str, body: bytes, count: int
) -> Iterator[Report]:
    queues = sender.queues_of(broker_name)
    sender.send(FILLING * 16, queues[0])
    for queue in itertools.islice(itertools.cycle(queues), count):
        start = _clock_ms()
        result = sender.send(body, queue)
        elapsed = _clock_ms() - start
        text = f"rt={round(elapsed)}ms, SendResult={result}"
        yield Report(text, result.to_json() | {"rt": round(elapsed, 3)})
