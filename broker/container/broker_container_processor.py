"""BrokerContainerProcessor: what the container answers at its own port: 902, 903, 25, 26.

Table and remarks are those of org.apache.rocketmq.container.BrokerContainerProcessor. Adding and
removing run on the container's request threads, reading the settings on the loop. Unlike
RocketMQ's it answers a code that it does not know (3), and listens to operators only: what starts a
process with a file of the peer's choice is not for everybody.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from broker.container.broker_container import BrokerContainer
from broker.container.broker_identity import BrokerIdentity
from broker.container.container_settings import ContainerSettings
from remoting.address_patterns import ip_of, parse_patterns
from remoting.command_custom_header import decode_header, encode_header
from remoting.errors import RequestError
from remoting.headers.broker import GetBrokerConfigResponseHeader
from remoting.headers.container import AddBrokerRequestHeader, RemoveBrokerRequestHeader
from remoting.operator_addresses import OperatorAddresses
from remoting.refusal_log import RefusalLog
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode, request_code_name
from remoting.request_processor import ConnectionLike, Route
from remoting.requester import describe_requester
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

REQUEST_POOL: Final = "BrokerContainerThread"
_READING: Final = frozenset({RequestCode.GET_BROKER_CONFIG})

_Handler = Callable[[ConnectionLike, RemotingCommand], RemotingCommand]


class BrokerContainerProcessor:
    """RequestProcessor of the container's port."""

    def __init__(self, brokers: BrokerContainer, settings: ContainerSettings) -> None:
        self._brokers = brokers
        self._settings = settings
        self._handlers: dict[int, _Handler] = {
            RequestCode.ADD_BROKER: self.add_broker,
            RequestCode.REMOVE_BROKER: self.remove_broker,
            RequestCode.UPDATE_BROKER_CONFIG: self.update_broker_config,
            RequestCode.GET_BROKER_CONFIG: self.get_broker_config,
        }

    def routes(self) -> dict[int, Route]:
        """Each code with the pool that it runs in."""
        return {
            code: Route(self, None if code in _READING else REQUEST_POOL) for code in self._handlers
        }

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """Serve one of the codes of `routes`. Raises RequestError."""
        return self._handlers[request.code](connection, request)

    def add_broker(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """902: answered once the broker serves."""
        path = decode_header(AddBrokerRequestHeader, request.ext_fields).config_path
        if not path:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "addBroker config path is empty")
        who = describe_requester(connection, request)
        log.warning("addBroker %r called by %s", path, who)
        self._brokers.add_broker(Path(path).absolute())
        return request.response(ResponseCode.SUCCESS)

    def remove_broker(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """903: answered once the broker's processes have ended."""
        header = decode_header(RemoveBrokerRequestHeader, request.ext_fields)
        identity = BrokerIdentity(header.broker_cluster_name, header.broker_name, header.broker_id)
        who = describe_requester(connection, request)
        log.warning("removeBroker %s called by %s", identity.canonical_name, who)
        self._brokers.remove_broker(identity)
        return request.response(ResponseCode.SUCCESS)

    def update_broker_config(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """25: the remark says what was done."""
        try:
            text = request.body.decode()
        except UnicodeDecodeError as error:
            remark = f"UnsupportedEncodingException {error}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from error
        remark = self._settings.update(text, describe_requester(connection, request))
        return request.response(ResponseCode.SUCCESS, remark)

    def get_broker_config(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """26: the container's settings as `key=value` lines."""
        lines = (f"{key}={value}\n" for key, value in self._settings.all_configs().items())
        version = self._settings.data_version().to_json_bytes().decode()
        fields = encode_header(GetBrokerConfigResponseHeader(version=version))
        return request.response(ResponseCode.SUCCESS, None, fields, "".join(lines).encode())


class OperatorsOnly:
    """`check` is the RequestGate of the container's ports."""

    def __init__(self, allowed: str) -> None:
        """allowed: adminAllowedAddresses. Raises ValueError for a malformed one."""
        self._operators = OperatorAddresses(parse_patterns(allowed), allowed)
        self._refusals = RefusalLog(log, lambda: time.monotonic_ns() // 1_000_000)

    def check(self, connection: ConnectionLike, request: RemotingCommand) -> None:
        """Raises RequestError if this peer may not send the request."""
        code = request.code
        if code in _READING or self._operators.include(connection):
            return
        error = RequestError(
            ResponseCode.NO_PERMISSION,
            f"request {code} ({request_code_name(code)}) is not accepted from "
            f"{ip_of(connection.remote_address)}: it is for operators at adminAllowedAddresses "
            f"(now {self._operators}); add the address to that setting of this broker container "
            "and restart it",
        )
        self._refusals.record(connection.remote_address, code, error)
        raise error
