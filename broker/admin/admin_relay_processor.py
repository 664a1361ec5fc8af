"""AdminRelayProcessor: operators' requests that are relayed to a connected client.

Runs in the `admin` pool: its threads wait for the client (broker/client/broker2client.py bounds how
many may). Serves 223 (221 to the clients), 307 and 309. Follows the same part of
AdminBrokerProcessor.
"""

from __future__ import annotations

import logging

from broker.client.broker2client import Broker2Client
from broker.processor.stored_rights import StoredRights, everybody, to_read
from broker.processor.table_processor import TableProcessor
from broker.store_access.store_access import StoreAccess
from remoting.body.reset_offset import GetConsumerStatusBody
from remoting.command_custom_header import decode_header
from remoting.errors import RequestError
from remoting.headers.admin import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.errors import StoreError
from store.message_codec import decode_message_id, decode_record

log = logging.getLogger(__name__)


class AdminRelayProcessor(TableProcessor):
    """Codes 223, 307 and 309."""

    def __init__(
        self,
        broker_name: str,
        clients: Broker2Client,
        store: StoreAccess,
        rights: StoredRights = everybody,
    ) -> None:
        super().__init__(
            {
                RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.get_consumer_status,
                RequestCode.GET_CONSUMER_RUNNING_INFO: self.get_consumer_running_info,
                RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_message_directly,
            }
        )
        self._broker_name = broker_name
        self._clients = clients
        self._store = store
        self._rights = rights

    def get_consumer_status(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """223: the progress of each member of a group (or of one member), as reported by the
        client."""
        header = decode_header(GetConsumerStatusRequestHeader, request.ext_fields)
        log.info(
            "consume status of group %s, topic %s: requested by %s",
            header.group,
            header.topic,
            connection.remote_address,
        )
        table = self._clients.get_consume_status(header.group, header.topic, header.client_addr)
        body = GetConsumerStatusBody(consumer_table=table)
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def get_consumer_running_info(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """307: settings, queues and rates of one consumer."""
        header = decode_header(GetConsumerRunningInfoRequestHeader, request.ext_fields)
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        return self._relay(code, header.consumer_group, header.client_id, request)

    def consume_message_directly(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """309: one consumer's listener consumes a stored message; offsets do not change."""
        header = decode_header(ConsumeMessageDirectlyRequestHeader, request.ext_fields)
        group, client_id = header.consumer_group, header.client_id or ""
        log.info(
            "message %s: to be consumed directly by %s of group %s, requested by %s",
            header.msg_id,
            client_id,
            group,
            connection.remote_address,
        )
        record = self._record(header.msg_id or "")
        # The topic of the request is what the sender says: a client gets the message to read.
        self._rights(connection, request, to_read(decode_record(record, 0)[0]))
        request.ext_fields["brokerName"] = self._broker_name
        request.body = record
        return self._relay(RequestCode.CONSUME_MESSAGE_DIRECTLY, group, client_id, request)

    def _relay(
        self, code: RequestCode, group: str, client_id: str, request: RemotingCommand
    ) -> RemotingCommand:
        """Relay the client's response as the response to `request`."""
        answer = self._clients.call_consumer(code, group, client_id, request)
        ext_fields = answer.ext_fields if answer.has_ext_fields else None
        return request.response(answer.code, answer.remark, ext_fields, answer.body)

    def _record(self, message_id: str) -> bytes:
        try:
            _, phy_offset = decode_message_id(message_id)
        except StoreError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        record = self._store.record_at(phy_offset)
        if record is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {phy_offset}; msgId {message_id} does "
                "not belong to this broker, or its file was deleted",
            )
        return record
