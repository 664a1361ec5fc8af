"""Fakes and builders of the name server's tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from namesrv.config_manager import ConfigManager
from namesrv.default_request_processor import DefaultRequestProcessor
from namesrv.kv_config_manager import KVConfigManager
from namesrv.namesrv_config import NamesrvConfig
from namesrv.route_info_manager import RouteInfoManager
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand


@dataclass
class FakeConnection:
    """ConnectionLike without a socket."""

    connection_id: int = 1
    remote_address: str = "10.1.1.1:5000"
    is_open: bool = True
    is_from_this_machine: bool = False
    sent: list[RemotingCommand] = field(default_factory=list)

    def send_command(self, command: RemotingCommand) -> None:
        self.sent.append(command)

    def close(self, reason: str) -> None:
        self.is_open = False


@dataclass
class Namesrv:
    """The name server without its sockets; `now_ms` is its clock."""

    config: NamesrvConfig
    connection: FakeConnection = field(default_factory=FakeConnection)
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.routes = RouteInfoManager()
        self.kv = KVConfigManager(Path(self.config.kv_config_path))
        self.kv.load()
        self.settings = ConfigManager(self.config)
        self.processor = DefaultRequestProcessor(
            self.routes, self.kv, self.settings, lambda: self.now_ms
        )

    def ask(
        self, request: RemotingCommand, connection: FakeConnection | None = None
    ) -> RemotingCommand:
        """The answer as the server would send it: a RequestError becomes one."""
        try:
            return self.processor.process_request(connection or self.connection, request)
        except RequestError as error:
            return request.response(error.code, error.remark)


@pytest.fixture
def new_namesrv(tmp_path: Path) -> Callable[..., Namesrv]:
    """A factory; two calls are a name server and its restart."""
    config = NamesrvConfig(
        kv_config_path=str(tmp_path / "kvConfig.json"),
        config_store_path=str(tmp_path / "namesrv.properties"),
    )
    return lambda **changes: Namesrv(replace(config, **changes))


@pytest.fixture
def namesrv(new_namesrv: Callable[..., Namesrv]) -> Namesrv:
    return new_namesrv()


@pytest.fixture
def new_connection() -> Callable[..., FakeConnection]:
    return FakeConnection
