"""Broker containers: addBroker, removeBroker.

(Java: AddBrokerSubCommand, RemoveBrokerSubCommand.)
"""

from __future__ import annotations

import re
from typing import Annotated, Final

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

_Container = Annotated[str, "-c --brokerContainerAddr", "Container, host:port."]


@command("addBroker")
def add_broker(
    admin: AdminClient,
    container: _Container,
    path: Annotated[
        str, "-b --brokerConfigPath", "Settings file of the broker, on the container's host."
    ],
) -> Report:
    """Start one more broker in a container; done once it serves."""
    header = AddBrokerRequestHeader(config_path=path.strip())
    admin.call(container.strip(), RequestCode.ADD_BROKER, header, timeout_ms=_TIMEOUT_MS)
    data = {"brokerContainerAddr": container, "brokerConfigPath": path}
    return Report(f"add broker to {container} success", data)


@command("removeBroker")
def remove_broker(
    admin: AdminClient,
    container: _Container,
    identity: Annotated[str, "-b --brokerIdentity", "The broker: clusterName:brokerName:brokerId."],
) -> Report:
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
