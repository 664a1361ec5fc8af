"""remoting.body.ha_runtime_info against what HARuntimeInfo of 5.3.3 wrote, and our additions."""

from __future__ import annotations

import pytest

from remoting.body.ha_runtime_info import (
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
    SlaveSyncInfo,
)
from remoting.remoting_serializable import loads_lenient

JAVA_MASTER = (
    b'{"haClientRuntimeInfo":{"lastReadTimestamp":0,"lastWriteTimestamp":0,"masterFlushOffset":0,'
    b'"maxOffset":0,"transferredByteInSecond":0},"haConnectionInfo":[{"addr":"127.0.0.1:40000",'
    b'"diff":100,"inSync":true,"slaveAckOffset":900,"transferFromWhere":950,'
    b'"transferredByteInSecond":7}],"inSyncSlaveNums":1,"master":true,'
    b'"masterCommitLogMaxOffset":1000}'
)
JAVA_SLAVE = (
    b'{"haClientRuntimeInfo":{"lastReadTimestamp":5,"lastWriteTimestamp":0,'
    b'"masterAddr":"127.0.0.1:10912","masterFlushOffset":3,"maxOffset":900,'
    b'"transferredByteInSecond":0},"haConnectionInfo":[],"inSyncSlaveNums":0,"master":false,'
    b'"masterCommitLogMaxOffset":0}'
)
"""Written by the Java class (jars of 5.3.3), which also read OURS and kept the same values."""

REPLICA = HAConnectionRuntimeInfo(
    addr="127.0.0.1:40000",
    slave_ack_offset=900,
    diff=100,
    in_sync=True,
    transferred_byte_in_second=7,
    transfer_from_where=950,
)
OURS = HARuntimeInfo(
    master=True,
    master_commit_log_max_offset=1000,
    in_sync_slave_nums=1,
    ha_connection_info=[
        HAConnectionRuntimeInfo(
            addr="127.0.0.1:40000",
            id="b:1",
            state="in_sync",
            counted=True,
            start_offset=0,
            lag_bytes=100,
            lag_seconds=1.5,
            lag_seconds_exact=False,
            connected_since=5,
            disconnected_since=6,
            last_error="silent: nothing came",
            last_error_timestamp=7,
        )
    ],
    refusals={"silent": 2},
    slave_sync={
        "topics": SlaveSyncInfo(
            last_success_timestamp=4, last_error="x", last_error_timestamp=3, failures=2
        )
    },
    timestamp=9,
)


@pytest.mark.parametrize("body", [JAVA_MASTER, JAVA_SLAVE])
def test_java_s_body_comes_back_byte_for_byte(body: bytes) -> None:
    assert HARuntimeInfo.from_json_bytes(body).to_json_bytes() == body


def test_what_java_says() -> None:
    master = HARuntimeInfo.from_json_bytes(JAVA_MASTER)
    assert (master.master, master.in_sync_slave_nums) == (True, 1)
    assert master.ha_connection_info == [REPLICA]
    assert [master.refusals, master.slave_sync, master.timestamp] == [None, None, None]
    slave = HARuntimeInfo.from_json_bytes(JAVA_SLAVE)
    assert slave.ha_client_runtime_info == HAClientRuntimeInfo(
        master_addr="127.0.0.1:10912", max_offset=900, last_read_timestamp=5, master_flush_offset=3
    )


def test_ours_comes_back_and_has_every_member_of_java() -> None:
    body = OURS.to_json_bytes()
    assert HARuntimeInfo.from_json_bytes(body) == OURS
    ours, theirs = loads_lenient(body), loads_lenient(JAVA_MASTER)
    assert theirs.keys() <= ours.keys()
    assert theirs["haClientRuntimeInfo"].keys() <= ours["haClientRuntimeInfo"].keys()
    assert theirs["haConnectionInfo"][0].keys() <= ours["haConnectionInfo"][0].keys()
    assert ours["haConnectionInfo"][0]["lagSeconds"] == 1.5
