"""A real etcd on loopback for tests: members with data directories and ports of their own.

Debian's etcd-server. Without it a test is skipped, and fails when CI=true, as with every tool from
outside (.ci/run installs it).
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tools.chaos.free_ports import free_port

DEADLINE_S = 60.0


def find_etcd() -> str:
    """The program; skips or fails the test without it."""
    found = shutil.which("etcd")
    if found is None:
        reason = "needs etcd on the PATH (Debian's package etcd-server)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


class Member:
    """One process of it."""

    def __init__(self, name: str, directory: Path, command: Sequence[str], port: int) -> None:
        self.name = name
        self.port = port
        self._directory = directory
        self._command = [*command]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command, stdout=log, stderr=log, cwd=self._directory
            )

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """kill -9, also of one that stands still. Idempotent."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(DEADLINE_S)
            self.process = None

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)


class Etcd:
    """All members."""

    def __init__(self, root: Path, size: int = 3, more: Sequence[str] = ()) -> None:
        program = find_etcd()
        ports = [free_port() for _ in range(2 * size)]
        names = [f"e{number}" for number in range(size)]
        peers = [f"http://127.0.0.1:{port}" for port in ports[size:]]
        scheme = "https" if any("--cert-file" in one for one in more) else "http"
        self.endpoints = [f"{scheme}://127.0.0.1:{port}" for port in ports[:size]]
        cluster = ",".join(f"{name}={url}" for name, url in zip(names, peers, strict=True))
        self.members = [
            Member(
                name,
                root / name,
                [
                    *(program, "--name", name, "--data-dir", str(root / name / "data")),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", cluster, "--initial-cluster-token", str(root)),
                    *more,
                ],
                int(client.rpartition(":")[2]),
            )
            for name, client, peer in zip(names, self.endpoints, peers, strict=True)
        ]

    @property
    def text(self) -> str:
        """As etcdEndpoints."""
        return ",".join(self.endpoints)

    def start(self) -> Etcd:
        for member in self.members:
            member.start()
        deadline = time.monotonic() + DEADLINE_S
        while self.leader() is None:
            assert time.monotonic() < deadline, "etcd does not start"
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        for member in self.members:
            member.kill()

    def call(
        self, path: str, body: Mapping[str, Any], port: int | None = None, token: str = ""
    ) -> dict[str, Any]:
        """By a client of the test's own."""
        status, text = post(self.members[0].port if port is None else port, path, body, token)
        assert status == 200, text
        found: dict[str, Any] = json.loads(text)
        return found

    def leader(self) -> Member | None:
        """The member that leads, as a member says that answers."""
        ids: dict[str, Member] = {}
        leaders: set[str] = set()
        for member in self.members:
            try:
                status = self.call("maintenance/status", {}, member.port)
            except (OSError, AssertionError, http.client.HTTPException):
                continue
            ids[status["header"]["member_id"]] = member
            leaders.add(status.get("leader", "0"))
        for one in leaders:
            if one in ids:
                return ids[one]
        return None


def post(
    port: int, path: str, body: Mapping[str, Any], token: str = "", timeout_s: float = 5
) -> tuple[int, str]:
    """Status and text."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_s)
    try:
        headers = {"Authorization": token} if token else {}
        connection.request("POST", f"/v3/{path}", json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def b64(text: str | bytes) -> str:
    """As keys and values are written."""
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode()
