"""A master and its slave of one side, with a name server: what the replication rows are run on.

Runs in the process of the benchmark. The name server is ours for both sides, so that the slaves
learn their master's address alike. Everything lives under one directory, which goes with the pair.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from remoting.body.kv_table import KVTable
from remoting.request_code import RequestCode
from tests.bench.measuring import side_broker
from tests.interop import harness
from tests.support.our_broker import FrameClient

# The largest multiple of a MiB that a Java int holds: a whole backlog in one "2 GB" file.
LOG_FILE_SIZE: Final = (2 << 30) - (1 << 20)
_LINK_LIMIT_S: Final = 30.0
_BROKER_NAME: Final = "bench-group"


class ReplicaPair:
    """Starts and ends the brokers of one side; leaving it ends them and deletes their files."""

    def __init__(
        self, side: str, directory: Path, *, role: str, master_store: Path | None = None
    ) -> None:
        """role: the master's. master_store: a store that stays (closed orderly at the end)."""
        self._side = side
        self._directory = directory
        self._keeps_master_store = master_store is not None
        self._name_server = harness.name_server("ours", directory / "namesrv")
        settings = {"brokerRole": role, "brokerId": "0"}
        self.master = self._broker("master", settings, master_store)
        self._slave: harness.Broker | None = None

    def __enter__(self) -> Self:
        self._name_server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._slave is not None:
            error.add_note(f"{self.master.log_tail()}\n{self._slave.log_tail()}")
        if self._slave is not None:
            self._slave.kill()
        if self._keeps_master_store and error is None:
            self.master.stop()
        self.master.kill()
        self._name_server.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def slave(self) -> harness.Broker:
        """The slave that was made last."""
        assert self._slave is not None
        return self._slave

    @property
    def ha_port(self) -> int:
        """Where the master serves its slaves."""
        return self.master.port + 1

    def new_slave(self, ha_port: int | None = None) -> harness.Broker:
        """An empty slave, not started. ha_port: a relay's, instead of the registered address."""
        settings = {"brokerRole": "SLAVE", "brokerId": "1"}
        if ha_port is not None:
            settings["haMasterAddress"] = f"127.0.0.1:{ha_port}"
        self._slave = self._broker("slave", settings, None)
        return self._slave

    def wait_linked(self, topic: str) -> None:
        """Until a SYNC_MASTER answers SUCCESS, which a slave alone can bring about."""
        deadline = time.monotonic() + _LINK_LIMIT_S
        code = -1
        while code != 0:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._side}: no SUCCESS in {_LINK_LIMIT_S} s, last {code}")
            with FrameClient(("127.0.0.1", self.master.port)) as client:
                code = client.send(topic, 0, b"linked?").code
            time.sleep(0.05)

    def _broker(self, name: str, settings: dict[str, str], store: Path | None) -> harness.Broker:
        return side_broker(
            self._side,
            self._directory / name,
            self._name_server.address,
            name=_BROKER_NAME,
            store_dir=store,
            conf={"mappedFileSizeCommitLog": str(LOG_FILE_SIZE), **settings},
        )


def runtime_info(client: FrameClient) -> dict[str, str]:
    """A broker's answer to GET_BROKER_RUNTIME_INFO (28)."""
    answer = client.call(RequestCode.GET_BROKER_RUNTIME_INFO, {})
    return KVTable.from_json_bytes(answer.body).table


def log_end(broker: harness.Broker) -> int:
    """A broker's max physical offset, bytes."""
    with FrameClient(("127.0.0.1", broker.port)) as client:
        return int(runtime_info(client)["commitLogMaxOffset"])
