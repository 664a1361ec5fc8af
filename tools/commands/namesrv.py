"""Name servers: their settings, their KV table, write permissions of brokers.

(Java: GetNamesrvConfigCommand, UpdateNamesrvConfigCommand, UpdateKvConfigCommand,
DeleteKvConfigCommand, WipeWritePermSubCommand, AddWritePermSubCommand.)
"""

from __future__ import annotations

from typing import Annotated

from remoting.command_custom_header import decode_header
from remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient, unknown
from tools.command_line import command
from tools.errors import AdminError
from tools.options import SettingKey, SettingValue
from tools.properties_text import parse_lines, properties_lines, setting_body
from tools.report import Report, safe_line

_Namespace = Annotated[str, "-s --namespace", "Namespace."]
_Key = Annotated[str, "-k --key", "Key."]
_Broker = Annotated[str, "-b --brokerName", "Broker name."]


@command("getNamesrvConfig")
def get_namesrv_config(admin: AdminClient) -> Report:
    """The settings of each name server."""
    lines, data = [], {}
    for address in admin.name_servers.addresses:
        response = admin.call(address, RequestCode.GET_NAMESRV_CONFIG)
        data[address] = parse_lines(response.body)
        lines += [f"============{address}============", *properties_lines(data[address])]
    return Report("\n".join(lines), data)


@command("updateNamesrvConfig")
def update_namesrv_config(admin: AdminClient, key: SettingKey, value: SettingValue) -> Report:
    """Change a setting in every name server."""
    body = setting_body(key, value)
    answers = admin.ask_every_name_server(RequestCode.UPDATE_NAMESRV_CONFIG, None, body)
    done = {address: response.remark for address, response in answers}
    lines = [f"update name server config success![{', '.join(done)}]", f"{key} : {value}"]
    lines += [safe_line(remark) for remark in done.values() if remark]
    data = {"nameServers": list(done), "key": key, "value": value, "remarks": done}
    return Report("\n".join(lines), data)


@command("updateKvConfig")
def update_kv_config(
    admin: AdminClient,
    namespace: _Namespace,
    key: _Key,
    value: Annotated[str, "-v --value", "Value."],
) -> Report:
    """Set a value in every name server."""
    header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
    admin.ask_every_name_server(RequestCode.PUT_KV_CONFIG, header)
    data = {"namespace": namespace, "key": key, "value": value}
    return Report("create or update kv config to namespace success.", data)


@command("deleteKvConfig", asks="Delete key {key} of namespace {namespace} in every name server?")
def delete_kv_config(admin: AdminClient, namespace: _Namespace, key: _Key) -> Report:
    """Delete a key in every name server."""
    header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
    admin.ask_every_name_server(RequestCode.DELETE_KV_CONFIG, header)
    data = {"namespace": namespace, "key": key}
    return Report("delete kv config from namespace success.", data)


@command("wipeWritePerm")
def wipe_write_perm(admin: AdminClient, broker_name: _Broker) -> Report:
    """No client sends to this broker any more until addWritePerm."""
    _check_broker(admin, broker_name)
    header = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
    counts = {
        address: decode_header(
            WipeWritePermOfBrokerResponseHeader, response.ext_fields
        ).wipe_topic_count
        for address, response in admin.ask_every_name_server(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER, header
        )
    }
    return _perm_report("wipe", broker_name, counts)


@command("addWritePerm")
def add_write_perm(admin: AdminClient, broker_name: _Broker) -> Report:
    """Clients may send to this broker again."""
    _check_broker(admin, broker_name)
    header = AddWritePermOfBrokerRequestHeader(broker_name=broker_name)
    counts = {
        address: decode_header(
            AddWritePermOfBrokerResponseHeader, response.ext_fields
        ).add_topic_count
        for address, response in admin.ask_every_name_server(
            RequestCode.ADD_WRITE_PERM_OF_BROKER, header
        )
    }
    return _perm_report("add", broker_name, counts)


def _check_broker(admin: AdminClient, broker_name: str) -> None:
    """A name server answers 0 topics for a misspelt name; here it is an error."""
    known = admin.cluster_info().broker_addr_table
    if broker_name not in known:
        raise AdminError(unknown("broker name", broker_name, known))


def _perm_report(verb: str, broker_name: str, counts: dict[str, int]) -> Report:
    lines = [
        f"{verb} write perm of broker[{broker_name}] in name server[{address}] OK, {count}"
        for address, count in counts.items()
    ]
    return Report("\n".join(lines), {"brokerName": broker_name, "topicCounts": counts})
