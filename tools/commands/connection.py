"""Who is connected: consumerConnection, producerConnection, producer.

(Java: ConsumerConnectionSubCommand, ProducerConnectionSubCommand, ProducerSubCommand.)
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from remoting.body.client_connection import Connection, ProducerInfo, ProducerTableInfo
from remoting.mq_version import version_name
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.command_line import command
from tools.errors import AdminError
from tools.report import Cell, Column, Report, columns, safe_line, table

CONSUMER_COLUMNS: Final = columns(
    "#ClientId clientId | #ClientAddr clientAddr | #Language language | #Version version"
)
SUBSCRIPTION_COLUMNS: Final = columns("#Topic topic | #SubExpression subExpression")


@command("consumerConnection")
def consumer_connection(
    admin: AdminClient,
    group: Annotated[str, "-g --consumerGroup", "Consumer group name."],
    address: Annotated[str | None, "-b --brokerAddr", "Ask this broker (host:port)."],
) -> Report:
    """The live members of a group and what they subscribe to."""
    found = admin.find_consumer_connection(group, address)
    if found is None:
        raise AdminError(f"no consumer of group {group} is online")
    clients = sorted(found.connection_set, key=lambda client: client.client_id)
    connections = table(CONSUMER_COLUMNS, [_client_row(client) for client in clients])
    subscriptions = table(
        SUBSCRIPTION_COLUMNS,
        [
            (data.topic, data.sub_string or "")
            for _, data in sorted(found.subscription_table.items())
        ],
    )
    kinds = {
        "ConsumeType": found.consume_type,
        "MessageModel": found.message_model,
        "ConsumeFromWhere": found.consume_from_where,
    }
    lines = [connections.text, "", "Below is subscription:", subscriptions.text, ""]
    lines += [f"{name}: {value}" for name, value in kinds.items()]
    data: dict[str, Any] = {"connections": connections.data, "subscriptions": subscriptions.data}
    data |= {name[0].lower() + name[1:]: value for name, value in kinds.items()}
    return Report("\n".join(lines), data)


def _client_row(client: Connection) -> tuple[str, str, str, str]:
    version = version_name(client.version)
    return client.client_id, client.client_addr, client.language, version


@command("producerConnection")
def producer_connection(
    admin: AdminClient,
    group: Annotated[str, "-g --producerGroup", "Producer group name."],
    topic: Annotated[str, "-t --topic", "A topic that they send to; selects the broker to ask."],
) -> Report:
    """The live members of a producer group, numbered."""
    clients = sorted(
        admin.producer_connection(group, topic).connection_set, key=lambda client: client.client_id
    )
    shown = (Column("#No", "number"), *CONSUMER_COLUMNS)
    rows = [
        (Cell(f"{i:04d}", i), *_client_row(client)) for i, client in enumerate(clients, start=1)
    ]
    return table(shown, rows)


@command("producer")
def producer(
    admin: AdminClient, address: Annotated[str, "-b --broker", "Broker address, host:port."]
) -> Report:
    """A line for each producer of each group at one broker."""
    body = admin.call(address, RequestCode.GET_ALL_PRODUCER_INFO).body
    groups = ProducerTableInfo.from_json_bytes(body).data
    lines, data = [], []
    for group, members in sorted(groups.items()):
        if not members:
            lines.append(f"producer group ({group}) instances are empty")
        for member in sorted(members, key=lambda member: member.client_id):
            lines.append(f"producer group ({group}) instance : {_producer_text(member)}")
            data.append({"producerGroup": group, **member.to_json()})
    text = "\n".join(safe_line(line) for line in lines)
    return Report(text or f"no producer is connected to {address}", data)


def _producer_text(member: ProducerInfo) -> str:
    """A producer as Java's ProducerInfo prints itself."""
    return (
        f"clientId={member.client_id},remoteIP={member.remote_ip}, language={member.language}, "
        f"version={member.version}, lastUpdateTimestamp={member.last_update_timestamp}"
    )
