"""Broker containers: addBroker, removeBroker.

(Java: AddBrokerSubCommand, RemoveBrokerSubCommand.)
"""

from __future__ import annotations

import re
from typing import Final

import click

from remoting.headers.container import AddBrokerRequestHeader, RemoveBrokerRequestHeader
from remoting.request_code import RequestCode
from remoting.response_code import RESPONSE_CODE_NAMES_5X, ResponseCode
from tools.admin_client import AdminClient
from tools.command_line import command
from tools.errors import AdminError
from tools.report import Report

_TIMEOUT_MS: Final = 60_000
"""A container answers when the broker serves, or has stopped."""
_BROKER_NOT_EXIST: Final = 211
"""A container is of 5.x, where this number has another name than in 4.x."""
_BROKER_ID: Final = re.compile(r"-?[0-9]{1,18}")

_CONTAINER = click.option(
    "-c", "--brokerContainerAddr", "container", required=True, help="Container, host:port."
)


@command("addBroker")
@_CONTAINER
@click.option(
    "-b",
    "--brokerConfigPath",
    "path",
    required=True,
    help="Settings file of the broker, on the container's host.",
)
def add_broker(admin: AdminClient, container: str, path: str) -> Report:
    """Start one more broker in a container; done once it serves."""
    header = AddBrokerRequestHeader(config_path=path.strip())
    admin.call(container.strip(), RequestCode.ADD_BROKER, header, timeout_ms=_TIMEOUT_MS)
    data = {"brokerContainerAddr": container, "brokerConfigPath": path}
    return Report(f"add broker to {container} success", data)


@command("removeBroker")
@_CONTAINER
@click.option(
    "-b",
    "--brokerIdentity",
    "identity",
    required=True,
    help="The broker: clusterName:brokerName:brokerId.",
)
def remove_broker(admin: AdminClient, container: str, identity: str) -> Report:
    """Stop one broker of a container; its files stay."""
    header = _parse_identity(identity)
    answer = admin.call(
        container.strip(),
        RequestCode.REMOVE_BROKER,
        header,
        accept=(ResponseCode.SUCCESS, _BROKER_NOT_EXIST),
        timeout_ms=_TIMEOUT_MS,
    )
    if answer.code == _BROKER_NOT_EXIST:
        name = RESPONSE_CODE_NAMES_5X[_BROKER_NOT_EXIST]
        raise AdminError(f"{container} answered {name} ({_BROKER_NOT_EXIST}): {answer.remark}")
    data = {"brokerContainerAddr": container, "brokerIdentity": identity}
    return Report(f"remove broker from {container} success", data)


def _parse_identity(text: str) -> RemoveBrokerRequestHeader:
    """Raises AdminError."""
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != 3 or not _BROKER_ID.fullmatch(parts[2]):
        raise AdminError(f"{text!r} is not clusterName:brokerName:brokerId")
    if int(parts[2]) < 0:
        raise AdminError("brokerId can't be negative")
    return RemoveBrokerRequestHeader(
        broker_cluster_name=parts[0], broker_name=parts[1], broker_id=int(parts[2])
    )
