"""Controllers of 5.x, and the epochs of brokers that have one.

For RocketMQ's controllers and ours (bin/mqcontroller). A broker that has none says so. (Java:
GetSyncStateSetSubCommand, GetBrokerEpochSubCommand, GetControllerMetaDataSubCommand,
GetControllerConfigSubCommand, UpdateControllerConfigSubCommand, ReElectMasterSubCommand,
CleanControllerBrokerMetaSubCommand.)

Tested by tests/tools/test_mqadmin_every_command.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import click

from remoting.body.controller import (
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    EpochEntryCache,
    ReplicaIdentity,
    ReplicasInfo,
)
from remoting.command_custom_header import decode_header
from remoting.errors import RemotingError
from remoting.headers.controller import (
    CleanControllerBrokerDataRequestHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
)
from remoting.remoting_serializable import dumps_java
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient, unknown
from tools.command_line import command
from tools.errors import AdminError
from tools.options import FLAG, SettingKey, SettingValue
from tools.properties_text import parse_lines, properties_lines, setting_body
from tools.report import Report, Reports, safe_line

_NULL: Final = "null"

_Controller = Annotated[
    str, "-a --controllerAddress", "Controller, host:port; several separated by ';'."
]
_Controllers = Annotated[str, "-a --controllerAddress", "host:port;host:port"]
_Cluster = Annotated[str | None, "-c --clusterName", "All broker names of this cluster."]
_Name = Annotated[str | None, "-b --brokerName", "Broker name."]


def _need_one(cluster: str | None, broker_name: str | None) -> None:
    if (cluster is None) == (broker_name is None):
        raise click.UsageError("one of -b BROKER_NAME and -c CLUSTER is needed")


def _text(value: object) -> str:
    """As Java prints what may be null."""
    return _NULL if value is None else safe_line(str(value))


def _metadata(admin: AdminClient, controllers: str) -> GetMetaDataResponseHeader:
    """What the first of these controllers that knows a leader says; else the first that answers.
    Raises AdminError: none does."""
    answers: list[GetMetaDataResponseHeader] = []
    errors: list[RemotingError | AdminError] = []
    for address in _addresses(controllers):
        try:
            response = admin.call(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
        except (RemotingError, AdminError) as error:
            errors.append(error)
            continue
        found = decode_header(GetMetaDataResponseHeader, response.ext_fields)
        if found.controller_leader_address:
            return found
        answers.append(found)
    if answers:
        return answers[0]
    if len(errors) == 1:
        raise errors[0]
    raise AdminError("; ".join(str(error) for error in errors))


def _leader(admin: AdminClient, controllers: str) -> str:
    """The controller that decides, as one of them says."""
    found = _metadata(admin, controllers).controller_leader_address
    if not found:
        raise AdminError(f"controller {controllers} knows no leader")
    return found


# -- what there is -----------------------------------------------------------------------------


@command("getControllerMetaData")
def get_controller_meta_data(admin: AdminClient, controller: _Controller) -> Report:
    """The controllers of a group and their leader."""
    found = _metadata(admin, controller)
    peers = [peer for peer in (found.peers or "").split(";") if peer]
    lines = [
        f"#ControllerGroup\t{_text(found.group)}",
        f"#ControllerLeaderId\t{_text(found.controller_leader_id)}",
        f"#ControllerLeaderAddress\t{_text(found.controller_leader_address)}",
        *(f"#Peer:\t{safe_line(peer)}" for peer in peers),
    ]
    data = {
        "group": found.group,
        "controllerLeaderId": found.controller_leader_id,
        "controllerLeaderAddress": found.controller_leader_address,
        "peers": peers,
    }
    return Report("\n".join(lines), data)


@command("getSyncStateSet")
def get_sync_state_set(
    admin: AdminClient, controller: _Controller, cluster: _Cluster, broker_name: _Name
) -> Report:
    """Which brokers of a group are in sync, as its controller sees them."""
    _need_one(cluster, broker_name)
    names = [broker_name] if broker_name is not None else _names(admin, cluster or "")
    leader = _leader(admin, controller)
    response = admin.call(
        leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=dumps_java(names)
    )
    found = BrokerReplicasInfo.from_json_bytes(response.body)
    parts = ["\n".join(_group_lines(*group)) for group in found.replicas_info_table.items()]
    return Report("\n\n".join(parts), found.to_json()["replicasInfoTable"])


def _names(admin: AdminClient, cluster: str) -> list[str]:
    return sorted({broker.broker_name for broker in admin.brokers(cluster)})


def _group_lines(name: str, info: ReplicasInfo) -> Iterator[str]:
    yield f"#brokerName\t{safe_line(name)}"
    yield f"#MasterBrokerId\t{_text(info.master_broker_id)}"
    yield f"#MasterAddr\t{_text(info.master_address)}"
    yield f"#MasterEpoch\t{_text(info.master_epoch)}"
    yield f"#SyncStateSetEpoch\t{_text(info.sync_state_set_epoch)}"
    yield f"#SyncStateSetNums\t{len(info.in_sync_replicas)}"
    for heading, replicas in (
        ("InSyncReplica", info.in_sync_replicas),
        ("NotInSyncReplica", info.not_in_sync_replicas),
    ):
        for replica in replicas:
            yield f"\n{heading}:\t{_replica_text(replica)}"


def _replica_text(replica: ReplicaIdentity) -> str:
    """A broker as Java's ReplicaIdentity prints itself."""
    alive = _NULL if replica.alive is None else str(replica.alive).lower()
    return (
        f"ReplicaIdentity{{brokerName='{_text(replica.broker_name)}', "
        f"brokerId={_text(replica.broker_id)}, "
        f"brokerAddress='{_text(replica.broker_address)}', alive={alive}}}"
    )


@command("getBrokerEpoch")
def get_broker_epoch(admin: AdminClient, cluster: _Cluster, broker_name: _Name) -> Report:
    """Which part of its log each master of a broker wrote."""
    _need_one(cluster, broker_name)
    brokers = admin.brokers(cluster)
    if broker_name is not None:
        known = {broker.broker_name for broker in brokers}
        brokers = [broker for broker in brokers if broker.broker_name == broker_name]
        if not brokers:
            raise AdminError(unknown("broker name", broker_name, known))
    parts, data = [], []
    for broker in brokers:
        response = admin.call(broker.address, RequestCode.GET_BROKER_EPOCH_CACHE)
        found = EpochEntryCache.from_json_bytes(response.body)
        parts.append("\n".join(_epoch_lines(broker.address, found)))
        data.append({"brokerAddr": broker.address, **found.to_json()})
    return Report("\n\n".join(parts), data)


def _epoch_lines(address: str, found: EpochEntryCache) -> Iterator[str]:
    yield f"#clusterName\t{_text(found.cluster_name)}"
    yield f"#brokerName\t{_text(found.broker_name)}"
    yield f"#brokerAddr\t{address}"
    yield f"#brokerId\t{found.broker_id}"
    for entry in found.epoch_list:
        end = found.max_offset if entry is found.epoch_list[-1] else entry.end_offset
        yield (
            f"#Epoch: EpochEntry{{epoch={entry.epoch}, startOffset={entry.start_offset}, "
            f"endOffset={end}}}"
        )


# -- settings ----------------------------------------------------------------------------------


@command("getControllerConfig")
def get_controller_config(admin: AdminClient, controllers: _Controllers) -> Report:
    """The settings of each controller."""
    lines, data = [], {}
    for address in _addresses(controllers):
        data[address] = parse_lines(admin.call(address, RequestCode.GET_CONTROLLER_CONFIG).body)
        lines += [f"============{address}============", *properties_lines(data[address])]
    return Report("\n".join(lines), data)


@command("updateControllerConfig")
def update_controller_config(
    admin: AdminClient, controllers: _Controllers, key: SettingKey, value: SettingValue
) -> Report:
    """Change a setting in each controller; a refusal does not stop the others."""
    body = setting_body(key, value)
    done, failures = [], []
    for address in _addresses(controllers):
        try:
            admin.call(address, RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)
        except (RemotingError, AdminError) as error:
            failures.append(str(error))
        else:
            done.append(address)
    if failures:
        where = ", ".join(done) or "none"
        raise AdminError(f"succeeded at controllers: {where}; failed: {'; '.join(failures)}")
    text = f"update controller config success![{', '.join(done)}]\n{key} : {value}"
    return Report(text, {"controllers": done, "key": key, "value": value})


def _addresses(controllers: str) -> list[str]:
    found = [part.strip() for part in controllers.split(";") if part.strip()]
    if not found:
        raise click.UsageError("-a needs at least one host:port")
    return found


# -- changes -----------------------------------------------------------------------------------


@command("electMaster")
def elect_master(
    admin: AdminClient,
    controller: _Controller,
    broker_id: Annotated[int, "-b --brokerId", "Who becomes master."],
    broker_name: Annotated[str, "-bn --brokerName", "Broker name."],
    cluster: Annotated[str, "-c --clusterName", "Cluster name."],
) -> Report:
    """Have the controller make a broker of a group its master."""
    header = ElectMasterRequestHeader(
        cluster_name=cluster,
        broker_name=broker_name,
        broker_id=broker_id,
        designate_elect=True,
        invoke_time=admin.now_ms(),
    )
    leader = _leader(admin, controller)
    response = admin.call(leader, RequestCode.CONTROLLER_ELECT_MASTER, header)
    found = decode_header(ElectMasterResponseHeader, response.ext_fields)
    group = None
    if response.body:
        group = ElectMasterResponseBody.from_json_bytes(response.body).broker_member_group
    members = {} if group is None else dict(group.broker_addrs)
    lines = [
        f"#ClusterName\t{cluster}",
        f"#BrokerName\t{broker_name}",
        f"#BrokerMasterAddr\t{_text(found.master_address)}",
        f"#MasterEpoch\t{_text(found.master_epoch)}",
        f"#SyncStateSetEpoch\t{_text(found.sync_state_set_epoch)}",
        *(f"\t#Broker\t{number}\t{safe_line(at)}" for number, at in sorted(members.items())),
    ]
    data = {
        "clusterName": cluster,
        "brokerName": broker_name,
        "masterAddress": found.master_address,
        "masterEpoch": found.master_epoch,
        "syncStateSetEpoch": found.sync_state_set_epoch,
        "brokerAddrs": {str(number): at for number, at in members.items()},
    }
    return Report("\n".join(lines), data)


def _ids(text: str | None) -> list[str]:
    """None without -b, which means all; so a -b that names none is refused."""
    if text is None:
        return []
    ids = [part.strip() for part in text.split(";") if part.strip()]
    if not ids or any(not each.isascii() or not each.isdigit() for each in ids):
        raise click.UsageError("-b needs ids with semicolons between them: 1;2;3")
    return ids


def _question(
    controller: str, broker_ids: str | None, broker_name: str, cluster: str | None, living: bool
) -> str:
    which = f"brokers {broker_ids} of" if broker_ids else "all brokers of"
    alive = ", even those alive" if living else ""
    return f"Have the controller forget {which} {broker_name}{alive}?"


@command("cleanBrokerMetadata", asks=_question)
def clean_broker_metadata(
    admin: AdminClient,
    controller: _Controller,
    broker_ids: Annotated[str | None, "-b --brokerControllerIdsToClean", "Ids: 1;2;3 [all]."],
    broker_name: Annotated[str, "-bn --brokerName", "Broker name."],
    cluster: Annotated[str | None, "-c --clusterName", "Cluster name; needed without -l."],
    living: Annotated[bool, "-l --cleanLivingBroker", "Even those alive.", FLAG],
) -> Reports:
    """Have the controller forget brokers of a group."""
    ids = _ids(broker_ids)
    if not living and not cluster:
        raise click.UsageError("without -l, -c CLUSTER is needed")
    header = CleanControllerBrokerDataRequestHeader(
        cluster_name=cluster,
        broker_name=broker_name,
        broker_controller_ids_to_clean=";".join(ids) or None,
        is_clean_living_broker=living,
        invoke_time=admin.now_ms(),
    )
    admin.call(_leader(admin, controller), RequestCode.CLEAN_BROKER_DATA, header)
    text = f"clear broker {broker_name} metadata from controller success!"
    return Report(text, {"brokerName": broker_name, "brokerIds": ids})
