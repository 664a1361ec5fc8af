"""A controller of ours in a thread, and the frames that brokers and operators send to it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controller.controller_config import ControllerConfig
from controller.controller_server import ControllerServer
from controller.etcd_config import EtcdConfig
from remoting.remoting_command import RemotingCommand
from remoting.remoting_config import RemotingClientConfig, RemotingServerConfig
from tests.support.our_broker import FrameClient

DEADLINE_S = 60.0


@contextmanager
def running(
    directory: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    etcd: EtcdConfig | None = None,
    **settings: object,
) -> Iterator[int]:
    """The port of a controller with these settings (fields of ControllerConfig)."""
    listening = socket.create_server((host, port))
    port = int(listening.getsockname()[1])
    config = ControllerConfig(
        controller_store_path=str(directory / "store"),
        config_store_path=str(directory / "controller.conf"),
        **settings,  # type: ignore[arg-type]
    )
    server = ControllerServer(
        config, RemotingServerConfig(), RemotingClientConfig(), listening, etcd=etcd
    )
    server.open()
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield port
    finally:
        server.request_stop()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


class Peer(FrameClient):
    """One connection to a controller."""

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), DEADLINE_S)

    def ask(self, code: int, body: bytes = b"", **fields: object) -> RemotingCommand:
        """The answer to a request with these fields."""
        texts = {key: str(value) for key, value in fields.items()}
        return self.call(code, texts, body)
