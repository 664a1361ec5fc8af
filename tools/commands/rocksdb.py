"""What 5.x keeps in RocksDB: rocksDBConfigToJson, exportMetadataInRocksDB,
checkRocksdbCqWriteProgress, exportPopRecord.

The requests are for Java brokers; ours has no RocksDB, and answers as a Java broker without it.
Files of RocksDB cannot be read here: that needs RocketMQ's own tool. (Java:
RocksDBConfigToJsonCommand, ExportMetadataInRocksDBCommand, CheckRocksdbCqWriteProgressCommand,
ExportPopRecordCommand.)
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import click

from remoting.body.controller import CheckRocksdbCqWriteResult
from remoting.errors import RemotingError
from remoting.headers.rocksdb import (
    CheckRocksdbCqWriteProgressRequestHeader,
    ExportRocksDBConfigToJsonRequestHeader,
)
from remoting.request_code import RequestCode
from tools.admin_client import AdminClient
from tools.command_line import command
from tools.errors import AdminError
from tools.properties_text import parse_lines
from tools.report import Report, Reports, safe_line
from tools.targets import Address, Members, master_targets, need_one

_TYPES: Final = ("topics", "subscriptionGroups", "consumerOffsets")
_TIMEOUT_MS: Final = 30_000
_CHECKED_MS: Final = 30 * 86_400_000
_CHECK_ERROR: Final = 3
_NO_LIBRARY: Final = (
    "{path}: files of RocksDB cannot be read here; use mqadmin of RocketMQ 5.3.3, or have the "
    "broker export them: rocksDBConfigToJson -b ADDRESS"
)


def _config_types(text: str | None) -> list[str]:
    """The kinds of config that are meant; all without any."""
    if text is None:
        return list(_TYPES)
    known = {name.lower(): name for name in _TYPES}
    wanted = [part.strip().lower() for part in text.split(";") if part.strip()]
    if not wanted or any(part not in known for part in wanted):
        raise click.UsageError(f"-t: {text!r} is none of {', '.join(_TYPES)}")
    return [known[part] for part in wanted]


@command("rocksDBConfigToJson")
def rocksdb_config_to_json(
    admin: AdminClient,
    types: Annotated[str | None, "-t --configType", f"{';'.join(_TYPES)} [all]."],
    address: Annotated[str | None, "-b --brokerAddr", "Have this broker export, host:port."],
    cluster: Annotated[str | None, "-c --cluster", "Have all masters of this cluster export."],
    path: Annotated[str | None, "-p --configPath", "A directory of RocksDB: refused here."],
    _file: Annotated[str | None, "-e --exportFile", "For -p."],
    _json: Annotated[bool, "-j --jsonEnable", "For -p."] = True,
) -> Report:
    """Have brokers write what they keep in RocksDB as JSON beside it."""
    names = _config_types(types)
    if path is not None and address is None and cluster is None:
        raise AdminError(_NO_LIBRARY.format(path=path))
    targets = master_targets(admin, address, cluster)
    header = ExportRocksDBConfigToJsonRequestHeader(
        config_type="".join(f"{name};" for name in names)
    )
    for target in targets:
        code = RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON
        admin.call(target, code, header, timeout_ms=_TIMEOUT_MS)
    what = "all brokers in cluster" if address is None else "broker"
    text = f"Use [rpc mode] call {what} to export to json file\nbroker export done."
    return Report(text, {"brokerAddrs": targets, "configTypes": names})


@command("exportMetadataInRocksDB")
def export_metadata_in_rocksdb(
    admin: AdminClient,
    path: Annotated[str, "-p --path", "The directory of the metadata."],
    types: Annotated[str, "-t --configType", "topics or subscriptionGroups."],
    _json: Annotated[bool, "-j --jsonEnable", "As JSON."] = False,
) -> Report:
    """Refuses: there is no RocksDB here."""
    _config_types(types)
    raise AdminError(_NO_LIBRARY.format(path=path))


@command("checkRocksdbCqWriteProgress")
def check_rocksdb_cq_write_progress(
    admin: AdminClient,
    *,
    cluster: Annotated[str, "-c --cluster", "Cluster name."],
    topic: Annotated[str, "-t --topic", "Topic name [all]."] = "",
    since_ms: Annotated[
        int | None, "-cf --checkFrom", "Stored since, ms since 1970 [30 days ago]."
    ],
) -> Reports:
    """Have brokers compare their consume queues in RocksDB with those in files."""
    from_ms = admin.now_ms() - _CHECKED_MS if since_ms is None else since_ms
    header = CheckRocksdbCqWriteProgressRequestHeader(topic=topic, check_store_time=from_ms)
    lines, data = [], []
    for broker in admin.masters(cluster):
        response = admin.call(broker.address, RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, header)
        found = CheckRocksdbCqWriteResult.from_json_bytes(response.body)
        if found.check_status == _CHECK_ERROR:
            result = safe_line(found.check_result or "null")
            lines.append(f"{broker.broker_name} check error, please check log... errInfo: {result}")
        else:
            lines.append(
                f"{broker.broker_name} check doing, please wait and get the result from log..."
            )
        data.append({"brokerName": broker.broker_name, **found.to_json()})
    return Report("\n".join(lines), data)


@command("exportPopRecord")
def export_pop_record(
    admin: AdminClient,
    address: Address,
    cluster: Members,
    dry_run: Annotated[bool, "-d --dryRun", "Only say which."] = False,
) -> Reports:
    """Have brokers move the records of pop from their KV store back into the revive topic."""
    need_one(address, cluster)
    if address is not None:
        settings = parse_lines(admin.call(address, RequestCode.GET_BROKER_CONFIG).body)
        brokers = [(settings.get("brokerName", ""), address)]
    else:
        brokers = [(broker.broker_name, broker.address) for broker in admin.brokers(cluster)]
    lines, failures = [], []
    data: list[dict[str, Any]] = []
    for name, target in brokers:
        try:
            if not dry_run:
                admin.call(target, RequestCode.POP_ROLLBACK, timeout_ms=_TIMEOUT_MS)
        except (RemotingError, AdminError) as error:
            failures.append(str(error))
            continue
        dry = str(dry_run).lower()
        lines.append(f"Export broker records, brokerName={name}, brokerAddr={target}, dryRun={dry}")
        data.append({"brokerName": name, "brokerAddr": target, "dryRun": dry_run})
    if failures:
        done = ", ".join(each["brokerAddr"] for each in data) or "none"
        raise AdminError(f"succeeded at brokers: {done}; failed: {'; '.join(failures)}")
    return Report("\n".join(lines), data)
