"""A console with a real broker of ours behind it, asked in this process as a browser would."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from starlette.testclient import TestClient

from console.server import Console, ConsoleOptions
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker
from tools.admin_client import NameServers

_TOKEN = re.compile(r'name="csrf_token" value="([^"]+)"')


class ConsoleWorld:
    """The console, a browser that is signed in as the operator, and one that is not."""

    def __init__(self, root: Path, broker: OurBroker, stack: ExitStack, **options: Any) -> None:
        self.broker = broker
        self.audit_file = root / "audit.log"
        self.resend_audit = root / "resend.jsonl"
        name_server = f"127.0.0.1:{broker.ports['namesrv']}"
        self.console = Console(
            ConsoleOptions(
                NameServers.parse(name_server),
                self.audit_file,
                values={"resend_audit": self.resend_audit},
                **options,
            ),
            stack,
        )
        self.console.start(stack)
        self.guest = self.browser()
        self.operator = self.browser()
        link = urlsplit(self.console.url())
        assert self.operator.get(f"{link.path}?{link.query}").status_code == 200
        wait_until(lambda: self.console.watch.snapshot().brokers)

    def browser(self) -> TestClient:
        """One with cookies of its own."""
        return TestClient(self.console.application, base_url="http://127.0.0.1:8088")

    def post(self, name: str, step: str = "run", **fields: str) -> httpx.Response:
        """Submit the form of an action, as the operator."""
        form = self.operator.get(f"/do/{name}").text
        (token, *_) = _TOKEN.findall(form)
        data = {"csrf_token": token, "step": step, **fields}
        return self.operator.post(f"/do/{name}", data=data)

    def audit(self) -> list[dict[str, Any]]:
        """Its lines, the oldest first."""
        return [json.loads(line) for line in self.audit_file.read_text().splitlines()]


@contextmanager
def console_world(root: Path, **options: Any) -> Iterator[ConsoleWorld]:
    """A broker of ours with its name server, and a console."""
    broker = OurBroker(root, autoCreateTopicEnable="true").start()
    try:
        with ExitStack() as stack:
            yield ConsoleWorld(root, broker, stack, **options)
    finally:
        broker.terminate()
