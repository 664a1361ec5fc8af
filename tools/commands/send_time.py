"""Measures the latency of sends: checkMsgSendRT, clusterRT, sendMsgStatus.

These store real messages. (Java: CheckMsgSendRTCommand, CLusterSendMsgRTCommand,
SendMsgStatusCommand.)
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Final

import click

from remoting.errors import RemotingError, RequestError
from tools.admin_client import MASTER_ID, AdminClient, BrokerAddress
from tools.command_line import command, print_error
from tools.errors import AdminError
from tools.message_sender import MessageSender
from tools.message_text import second_text
from tools.report import Column, Report, heading_report, row_report, table

COMMAND_ERRORS: Final = (AdminError, RemotingError, RequestError)
SEND_COLUMNS: Final = (
    Column("#Broker Name", "brokerName", width=24),
    Column("#QID", "queueId"),
    Column("#Send Result", "success"),
    Column("#RT", "rt"),
)
CLUSTER_COLUMNS: Final = (
    Column("#Cluster Name", "clusterName"),
    Column("#Broker Name", "brokerName"),
    Column("#RT", "rt", right=True),
    Column("#successCount", "successCount", right=True),
    Column("#failCount", "failCount", right=True),
)
FILLING: Final = b"a"

_AMOUNT = click.option(
    "-a", "--amount", type=click.IntRange(1), default=100, help="Number of messages [100]."
)
_SIZE = click.option("-s", "--size", type=click.IntRange(1), default=128, help="Bytes each [128].")


@command("checkMsgSendRT")
@click.option("-t", "--topic", required=True, help="Topic name.")
@_AMOUNT
@_SIZE
def check_msg_send_rt(admin: AdminClient, topic: str, amount: int, size: int) -> Iterator[Report]:
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
        row = (queue.broker_name, queue.queue_id, str(success).lower(), round(times[-1]))
        report = row_report(SEND_COLUMNS, row)
        yield Report(report.text, report.data | {"success": success, "rt": round(times[-1], 3)})
    yield Report(f"Avg RT: {_average(times):.2f}")


def _clock_ms() -> float:
    return time.monotonic_ns() / 1e6


def _average(times: list[float]) -> float:
    """Without the first send, which includes connecting, unless it is the only one."""
    counted = times[1:] or times
    return sum(counted) / len(counted)


@command("clusterRT")
@_AMOUNT
@_SIZE
@click.option("-c", "--cluster", help="Cluster name; all clusters without it.")
@click.option(
    "-p", "--print", "as_log", type=bool, default=False, help="One |-separated line each."
)
@click.option("-m", "--machine", "room", default="noname", help="Machine room, for -p true.")
def cluster_rt(
    admin: AdminClient, amount: int, size: int, cluster: str | None, as_log: bool, room: str
) -> Report:
    """Send to the system topic of each master and average the times."""
    masters = [broker for broker in admin.brokers(cluster) if broker.broker_id == MASTER_ID]
    rows = [_measure(admin, master, amount, FILLING * size) for master in masters]
    texts = [(*row[:2], f"{row[2]:.2f}", *row[3:]) for row in rows]
    data = table(CLUSTER_COLUMNS, rows).data
    if not as_log:
        return Report(table(CLUSTER_COLUMNS, texts).text, data)
    now = second_text(admin.now_ms())
    lines = [f"{now}|{room}|{name}|{broker}|{round(rt)}" for name, broker, rt, _, _ in rows]
    return Report("\n".join(lines), data)


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
@click.option("-b", "--brokerName", "broker_name", required=True, help="Broker name.")
@click.option("-s", "--messageSize", "size", type=click.IntRange(1), default=128)
@click.option("-c", "--count", type=click.IntRange(1), default=50)
def send_msg_status(
    admin: AdminClient, broker_name: str, size: int, count: int
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
