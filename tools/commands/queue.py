"""queryCq: the entries of one consume queue. (Java: QueryConsumeQueueCommand.)"""

from __future__ import annotations

from typing import Annotated, Final

from remoting.body.query_queue import ConsumeQueueData, QueryConsumeQueueResponseBody
from remoting.headers.admin import QueryConsumeQueueRequestHeader
from remoting.remoting_serializable import dumps_java_pretty
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient, addresses
from tools.command_line import command
from tools.errors import AdminError
from tools.options import NATURAL, POSITIVE, Topic
from tools.report import Report, safe_line, safe_text

RULER: Final = "=" * 38


@command("queryCq")
def query_cq(
    admin: AdminClient,
    *,
    topic: Topic,
    queue_id: Annotated[int, "-q --queue", "Queue id.", NATURAL],
    index: Annotated[int, "-i --index", "First queue offset.", NATURAL],
    count: Annotated[int, "-c --count", "How many [10].", POSITIVE] = 10,
    address: Annotated[str | None, "-b --broker", "Broker address [default: the topic's first]."],
    group: Annotated[
        str | None, "-g --consumer", "Also show whether this group's filter matches each."
    ],
) -> Report:
    """Positions of the messages in the commit log, and their tags' hash codes."""
    target = address if address is not None else _first_broker(admin, topic)
    header = QueryConsumeQueueRequestHeader(
        topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group
    )
    response = admin.call(target, RequestCode.QUERY_CONSUME_QUEUE, header)
    if not response.body:
        reason = response.remark or "no remark"
        raise AdminError(f"{target} has no entry {index} in queue {queue_id} of {topic}: {reason}")
    body = QueryConsumeQueueResponseBody.from_json_bytes(response.body)
    return Report("\n".join(_lines(body, index)), {"brokerAddr": target, **body.to_json()})


def _first_broker(admin: AdminClient, topic: str) -> str:
    found = addresses(admin.route(topic))
    if not found:
        raise AdminError(f"topic {topic} has no running broker")
    return found[0]


def _lines(body: QueryConsumeQueueResponseBody, index: int) -> list[str]:
    lines = []
    if body.subscription_data is not None:
        subscription = dumps_java_pretty(body.subscription_data.to_json()).decode()
        lines += ["Subscription data: ", safe_text(subscription), RULER]
    if body.filter_data is not None:
        lines += ["Filter data: ", safe_text(body.filter_data), RULER]
    lines += ["Queue data: ", f"max: {body.max_queue_index}, min: {body.min_queue_index}", RULER]
    for position, entry in enumerate(body.queue_data, start=index):
        lines += [f"idx: {position}", _entry_text(entry), RULER]
    return lines


def _entry_text(entry: ConsumeQueueData) -> str:
    """An entry as Java's ConsumeQueueData prints itself."""
    texts = {"extendDataJson": entry.extend_data_json, "bitMap": entry.bit_map, "msg": entry.msg}
    quoted = {name: f"'{'null' if text is None else text}'" for name, text in texts.items()}
    return safe_line(
        f"ConsumeQueueData{{physicOffset={entry.physic_offset}, physicSize={entry.physic_size}, "
        f"tagsCode={entry.tags_code}, extendDataJson={quoted['extendDataJson']}, "
        f"bitMap={quoted['bitMap']}, eval={str(entry.eval).lower()}, msg={quoted['msg']}}}"
    )
