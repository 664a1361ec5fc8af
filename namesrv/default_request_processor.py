"""DefaultRequestProcessor: handles the name server's requests (Java: DefaultRequestProcessor).

One table from request code to method; each method turns header and body into one call of the route,
KV or config manager, and the result into a response with Java's fields and remarks. Any thread (the
managers do their own locking), but 105 on one thread only. A peer's error is raised as RequestError
and answered by the server; a code that is not in the table is answered with 3, as in 5.3.3 (4.9.8
lets the caller time out). Knows no socket and no file.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from namesrv.config_manager import ConfigManager
from namesrv.kv_config_manager import NAMESPACE_ORDER_TOPIC_CONFIG, KVConfigManager
from namesrv.registrations import BROKER_CHANNEL_EXPIRED_MS, BrokerRegistration
from namesrv.route_bodies import RouteBodies
from namesrv.route_info_manager import RouteInfoManager
from namesrv.topic_route_request import read_topic_route
from remoting.body.broker_member_group import BrokerMemberGroup, GetBrokerMemberGroupResponseBody
from remoting.body.data_version import DataVersion
from remoting.body.kv_table import KVTable
from remoting.body.register_broker import body_crc32, decode_register_broker_body
from remoting.body.topic_config import TopicList
from remoting.command_custom_header import CommandCustomHeader, decode_header, encode_header
from remoting.errors import RequestError
from remoting.headers.broker import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    RegisterTopicRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from remoting.mq_version import V4_9_4
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.requester import describe_requester
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

_SUCCESS: Final = ResponseCode.SUCCESS
_ZLIB_START: Final = b"\x78"
_ZONE_NAME: Final = "__ZONE_NAME"
_NO_ROUTE: Final = (
    "No topic route info in name server for the topic: {}"
    "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
)

_Handler = Callable[[ConnectionLike, RemotingCommand], RemotingCommand]


class DefaultRequestProcessor:
    """RequestProcessor for all request codes of the name server."""

    def __init__(
        self,
        route_info_manager: RouteInfoManager,
        kv_config_manager: KVConfigManager,
        config_manager: ConfigManager,
        now_ms: Callable[[], int],
    ) -> None:
        """`now_ms`: the monotonic clock in ms that the expiry scan also uses."""
        self._routes = route_info_manager
        self._kv = kv_config_manager
        self._config = config_manager
        self._now_ms = now_ms
        self._route_bodies = RouteBodies(route_info_manager)
        self._handlers: dict[int, _Handler] = {
            RequestCode.PUT_KV_CONFIG: self._put_kv_config,
            RequestCode.GET_KV_CONFIG: self._get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._get_kv_list_by_namespace,
            RequestCode.REGISTER_BROKER: self._register_broker,
            RequestCode.UNREGISTER_BROKER: self._unregister_broker,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.BROKER_HEARTBEAT: self._broker_heartbeat,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._get_route_info_by_topic,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._get_broker_cluster_info,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._get_broker_member_group,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._get_all_topic_list,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._get_system_topic_list,
            RequestCode.GET_UNIT_TOPIC_LIST: self._get_unit_topic_list,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._get_has_unit_sub_topic_list,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._get_has_unit_sub_ununit_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
        }

    @property
    def codes(self) -> Iterable[int]:
        """The request codes that are served."""
        return self._handlers.keys()

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """The response. Raises RequestError."""
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f" request type {request.code} not supported"
            raise RequestError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        return handler(connection, request)

    # -- brokers -------------------------------------------------------------------------------

    def _register_broker(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(RegisterBrokerRequestHeader, request.ext_fields)
        _check_crc32(header, request.body, connection)
        result = self._routes.register_broker(
            _registration(header, request), connection, self._now_ms()
        )
        if not connection.is_open:
            # It was closed while the request waited: on_close came before the registration.
            self._routes.on_channel_destroy(
                connection.connection_id, "before the registration was processed"
            )
        order_config = self._kv.find_kv_list_by_namespace(NAMESPACE_ORDER_TOPIC_CONFIG)
        return _response(
            request,
            RegisterBrokerResponseHeader(
                ha_server_addr=result.ha_server_addr, master_addr=result.master_addr
            ),
            b"" if order_config is None else _kv_table(order_config),
        )

    def _unregister_broker(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(UnRegisterBrokerRequestHeader, request.ext_fields)
        self._routes.unregister_broker(header.broker_name, header.broker_addr)
        return request.response(_SUCCESS)

    def _query_data_version(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(QueryDataVersionRequestHeader, request.ext_fields)
        asked = DataVersion.from_request(request.body)
        changed, held = self._routes.query_data_version(header.broker_addr, asked, self._now_ms())
        body = b"" if held is None else held.to_json_bytes()
        return _response(request, QueryDataVersionResponseHeader(changed=changed), body)

    def _broker_heartbeat(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(BrokerHeartbeatRequestHeader, request.ext_fields)
        self._routes.update_broker_info_update_timestamp(header.broker_addr, self._now_ms())
        return request.response(_SUCCESS)

    # -- routes --------------------------------------------------------------------------------

    def _get_route_info_by_topic(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(GetRouteInfoRequestHeader, request.ext_fields)
        standard = request.version >= V4_9_4 or bool(header.accept_standard_json_only)
        body = self._route_bodies.find(
            header.topic,
            self._find_order_conf(header.topic),
            standard,
            supports_acting=self._config.config.support_acting_master,
        )
        if body is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, _NO_ROUTE.format(header.topic))
        return request.response(_SUCCESS, body=body)

    def _find_order_conf(self, topic: str) -> str | None:
        if not self._config.config.order_message_enable:
            return None
        return self._kv.get_kv_config(NAMESPACE_ORDER_TOPIC_CONFIG, topic)

    def _get_broker_cluster_info(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        return request.response(_SUCCESS, body=self._routes.get_all_cluster_info().to_json_bytes())

    def _get_broker_member_group(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(GetBrokerMemberGroupRequestHeader, request.ext_fields)
        group = BrokerMemberGroup(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_addrs=self._routes.get_broker_member_group(header.broker_name),
        )
        body = GetBrokerMemberGroupResponseBody(broker_member_group=group)
        return request.response(_SUCCESS, body=body.to_json_bytes())

    # -- topic lists ---------------------------------------------------------------------------

    def _get_all_topic_list(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        return _topic_list(request, self._routes.get_all_topic_list())

    def _get_topics_by_cluster(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(GetTopicsByClusterRequestHeader, request.ext_fields)
        return _topic_list(request, self._routes.get_topics_by_cluster(header.cluster))

    def _get_system_topic_list(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        return _topic_list(request, *self._routes.get_system_topic_list())

    def _get_unit_topic_list(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        return _topic_list(request, self._routes.get_unit_topics())

    def _get_has_unit_sub_topic_list(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        return _topic_list(request, self._routes.get_has_unit_sub_topic_list())

    def _get_has_unit_sub_ununit_topics(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        return _topic_list(request, self._routes.get_has_unit_sub_ununit_topic_list())

    # -- topics and permissions ----------------------------------------------------------------

    def _delete_topic(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(DeleteTopicFromNamesrvRequestHeader, request.ext_fields)
        self._routes.delete_topic(header.topic, header.cluster_name or None)
        log.info("topic %s: deleted by %s", header.topic, connection.remote_address)
        return request.response(_SUCCESS)

    def _register_topic(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(RegisterTopicRequestHeader, request.ext_fields)
        route = read_topic_route(request)
        if not self._routes.register_topic(header.topic, route.queue_datas):
            log.warning("topic %s: not registered: no broker names, or unknown ones", header.topic)
        return request.response(_SUCCESS)

    def _wipe_write_perm(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(WipeWritePermOfBrokerRequestHeader, request.ext_fields)
        count = self._routes.wipe_write_perm_of_broker(header.broker_name)
        log.warning(
            "broker %s: write permission wiped on %s topics by %s",
            header.broker_name,
            count,
            connection.remote_address,
        )
        return _response(request, WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

    def _add_write_perm(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(AddWritePermOfBrokerRequestHeader, request.ext_fields)
        count = self._routes.add_write_perm_of_broker(header.broker_name)
        log.warning(
            "broker %s: write permission added on %s topics by %s",
            header.broker_name,
            count,
            connection.remote_address,
        )
        return _response(request, AddWritePermOfBrokerResponseHeader(add_topic_count=count))

    # -- key-value table -----------------------------------------------------------------------

    def _put_kv_config(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(PutKVConfigRequestHeader, request.ext_fields)
        if not header.namespace or not header.key:
            raise RequestError(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        self._kv.put_kv_config(header.namespace, header.key, header.value)
        return request.response(_SUCCESS)

    def _get_kv_config(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(GetKVConfigRequestHeader, request.ext_fields)
        value = self._kv.get_kv_config(header.namespace, header.key)
        if value is None:
            raise RequestError(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return _response(request, GetKVConfigResponseHeader(value=value))

    def _delete_kv_config(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(DeleteKVConfigRequestHeader, request.ext_fields)
        self._kv.delete_kv_config(header.namespace, header.key)
        return request.response(_SUCCESS)

    def _get_kv_list_by_namespace(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        header = decode_header(GetKVListByNamespaceRequestHeader, request.ext_fields)
        table = self._kv.find_kv_list_by_namespace(header.namespace)
        if table is None:
            remark = f"No config item, Namespace: {header.namespace}"
            raise RequestError(ResponseCode.QUERY_NOT_FOUND, remark)
        return request.response(_SUCCESS, body=_kv_table(table))

    # -- settings ------------------------------------------------------------------------------

    def _update_config(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        try:
            text = request.body.decode()
        except UnicodeDecodeError as error:
            remark = f"UnsupportedEncodingException {error}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from error
        remark = self._config.update(text, describe_requester(connection, request))
        return request.response(_SUCCESS, remark)

    def _get_config(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        return request.response(_SUCCESS, body=self._config.format_all().encode())


def _response(
    request: RemotingCommand, header: CommandCustomHeader, body: bytes = b""
) -> RemotingCommand:
    """Success with a header; without values its extFields are sent empty, as Java does."""
    return request.response(_SUCCESS, ext_fields=encode_header(header), body=body)


def _topic_list(
    request: RemotingCommand, topics: list[str], broker_addr: str | None = None
) -> RemotingCommand:
    body = TopicList(topic_list=topics, broker_addr=broker_addr)
    return request.response(_SUCCESS, body=body.to_json_bytes())


def _kv_table(table: Mapping[str, str]) -> bytes:
    return KVTable(table=dict(table)).to_json_bytes()


def _check_crc32(
    header: RegisterBrokerRequestHeader, body: bytes, connection: ConnectionLike
) -> None:
    """bodyCrc32 is computed over the bytes as sent, compressed or not; 0: not checked."""
    if header.body_crc32 and body_crc32(body) != header.body_crc32:
        log.warning("broker %s: crc32 not match, from %s", header, connection.remote_address)
        raise RequestError(ResponseCode.SYSTEM_ERROR, "crc32 not match")


def _registration(
    header: RegisterBrokerRequestHeader, request: RemotingCommand
) -> BrokerRegistration:
    # A 5.3.3 broker with compressedRegister compresses the body but sends compressed=false (which
    # its own name server cannot read). No JSON starts with the first byte of a zlib stream.
    compressed = header.compressed or request.body.startswith(_ZLIB_START)
    body = decode_register_broker_body(request.body, compressed=compressed, version=request.version)
    wrapper = body.topic_config_serialize_wrapper
    timeout_ms = header.heartbeat_timeout_millis or 0
    return BrokerRegistration(
        cluster_name=header.cluster_name,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        broker_addr=header.broker_addr,
        ha_server_addr=header.ha_server_addr,
        data_version=wrapper.data_version,
        topic_configs=wrapper.topic_config_table,
        filter_servers=tuple(body.filter_server_list),
        timeout_ms=timeout_ms if timeout_ms > 0 else BROKER_CHANNEL_EXPIRED_MS,
        enable_acting_master=header.enable_acting_master,
        zone_name=request.ext_fields.get(_ZONE_NAME),
        topic_queue_mappings=wrapper.topic_queue_mapping_info_map or {},
    )
