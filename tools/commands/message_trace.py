"""queryMsgTraceById: who sent a message and who consumed it. (Java: QueryMsgTraceByIdSubCommand.)

Shows what clients wrote into the trace topic: nothing for clients that do not trace.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from tools.admin_client import AdminClient
from tools.command_line import command, print_error
from tools.errors import AdminError
from tools.message_finder import END_OF_TIME, MAX_BY_KEY, query_messages
from tools.message_text import second_text
from tools.options import POSITIVE
from tools.report import Column, Report, table
from tools.trace_data import PUB, SUB, TraceView, decode_traces

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"


def _columns(group: str, time: str) -> tuple[Column, ...]:
    return (
        Column("#Type", "type"),
        Column(group, "group"),
        Column("#ClientHost", "clientHost"),
        Column(time, "time"),
        Column("#CostTimes", "cost"),
        Column("#Status", "status"),
    )


PUB_COLUMNS: Final = _columns("#ProducerGroup", "#SendTime")
SUB_COLUMNS: Final = _columns("#ConsumerGroup", "#ConsumerTime")


@command("queryMsgTraceById")
def query_msg_trace_by_id(
    admin: AdminClient,
    msg_id: Annotated[str, "-i --msgId", "The message's unique key."],
    topic: Annotated[str, "-t --traceTopic", "Topic of the traces."] = TRACE_TOPIC,
    begin_ms: Annotated[int, "-b --beginTimestamp", "Stored since, ms."] = 0,
    end_ms: Annotated[int, "-e --endTimestamp", "Until, ms."] = END_OF_TIME,
    count: Annotated[int, "-c --maxNum", POSITIVE] = MAX_BY_KEY,
) -> Report:
    """A table for each time it was sent, then one for each group that consumed it."""
    views: list[TraceView] = []
    for message in query_messages(
        admin, topic, msg_id, count, unique=False, begin_ms=begin_ms, end_ms=end_ms
    ):
        found, damaged = decode_traces(msg_id, message)
        views += found
        if damaged:
            print_error("queryMsgTraceById", f"{message.msg_id}: {damaged} damaged traces left out")
    if not views:
        raise AdminError(f"topic {topic} has no trace of message {msg_id}")
    sent = [view for view in views if view.kind == PUB]
    tables = [table(PUB_COLUMNS, [_row(view)]).text for view in sent]
    consumed = [view for view in views if view.kind == SUB]
    for group in dict.fromkeys(view.group for view in consumed):
        rows = [_row(view) for view in consumed if view.group == group]
        tables.append(table(SUB_COLUMNS, rows).text)
    return Report("\n\n".join(tables), [_data(view) for view in sent + consumed])


def _row(view: TraceView) -> tuple[str, ...]:
    time = second_text(view.timestamp_ms)
    status = "success" if view.success else "failed"
    return view.kind, view.group, view.client_host, time, f"{view.cost_ms}ms", status


def _data(view: TraceView) -> dict[str, Any]:
    return {
        "type": view.kind,
        "group": view.group,
        "clientHost": view.client_host,
        "timestamp": view.timestamp_ms,
        "costTime": view.cost_ms,
        "success": view.success,
    }
