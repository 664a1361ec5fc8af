"""The server of `remoting`: what hears of connections."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.broker.broker_fakes import FakeConnection
from tests.broker.route_world import built_controller


def test_a_connection_that_closes_takes_its_pulls_along(tmp_path: Path) -> None:
    with built_controller(tmp_path) as controller:
        listener, hold = controller._server._listener, controller._pull.hold_service
        assert listener is not None
        connections = [FakeConnection(), FakeConnection()]
        for connection in connections:
            listener.on_open(connection)
            request = SimpleNamespace(
                connection=connection, header=SimpleNamespace(subscription="*")
            )
            pull: Any = SimpleNamespace(request=request, deadline_ms=1 << 40)
            assert hold.hold(("T", 0), pull)
        listener.on_close(connections[0], "gone")
        assert hold.figures().pulls == 1
        listener.on_close(connections[1], "gone")
        assert hold.is_empty
