"""Network: tells the process that carries a group's network (network_relay.py) who hears whom.

Any thread; one command at a time, in force when the call returns.

Tested by tests/tools/chaos/test_network.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[2]
_END_S: Final = 10.0

Link = tuple[str, str]
"""From one node to another, by name: one direction."""


class NetworkError(Exception):
    """The network does not do what it was told; the text says why."""


class Network:
    """See the module. Used as a context, or closed."""

    def __init__(self) -> None:
        """Starts its process."""
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.chaos.network_relay"],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def lead(self, listen: tuple[str, int], target: tuple[str, int], node: str) -> None:
        """What comes to `listen` goes to `target`, which is the node's. Raises NetworkError."""
        self._tell({"listen": listen, "target": target, "node": node})

    def know(self, owners: Mapping[int, str]) -> None:
        """Whose processes are which nodes': by the pid of the oldest; children are its. Raises
        NetworkError."""
        self._tell({"owners": owners})

    def cut(self, links: Iterable[Link], *, refuses: bool = False) -> None:
        """These pass nothing, all others pass. refuses: connections over them are reset, and new
        ones too; otherwise they are silent. Raises NetworkError."""
        self._tell({"cut": sorted(links), "refuses": refuses})

    def heal(self) -> None:
        """Everything passes. Raises NetworkError."""
        self.cut(())

    def close(self) -> None:
        """End every connection."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _tell(self, command: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            try:
                self._process.stdin.write(json.dumps(command).encode() + b"\n")
                self._process.stdin.flush()
                line = self._process.stdout.readline()
            except (OSError, ValueError) as error:
                raise NetworkError(f"the network has ended: {error}") from error
        if not line:
            raise NetworkError("the network has ended")
        if refusal := json.loads(line).get("error"):
            raise NetworkError(f"the network refused {command}: {refusal}")


def both_ways(node: str, others: Iterable[str]) -> list[Link]:
    """The links between a node and the others."""
    return [link for other in others for link in ((node, other), (other, node))]
