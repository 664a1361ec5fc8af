"""Row: mqadmin against servers that answer anything."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from remoting.errors import RemotingTimeoutError
from remoting.remoting_client import RemotingClient
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from tests.fuzz.mutation import frames_of, mutate_bytes, mutate_frames
from tests.fuzz.target import Target
from tests.tools.fake_cluster import MASTER, FakeCluster
from tests.tools.test_mqadmin_every_command import RUNS, _arguments, willing
from tools.command_line import CommandContext
from tools.mqadmin import main

NAMES = tuple(RUNS)
_EXITS = (0, 1, 2)
_MOST_CALLS = 40


class _Operator:
    """The first byte chooses the command; the frames after it answer its requests in turn, the
    second byte says from which request on. All others are answered as by a willing cluster."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._cluster = FakeCluster(MASTER)
        patch = mock.Mock()
        willing.__wrapped__(self._cluster, patch, root)  # type: ignore[attr-defined]
        self._cluster.address = MASTER
        self.asked: list[RemotingCommand] = []

    def run(self, data: bytes) -> None:
        """It ends with a text and an exit code, whatever it is answered."""
        number, first, stream = (*data[:2], data[2:]) if len(data) > 1 else (0, 0, b"")
        self.play(NAMES[number % len(NAMES)], first % 8, frames_of(stream))

    def play(self, name: str, first: int, answers: Sequence[RemotingCommand]) -> list[bytes]:
        """Run one command; the frames that answered it."""
        given: list[bytes] = []

        def invoke(
            _client: Any, address: str, request: RemotingCommand, _timeout_ms: int
        ) -> RemotingCommand:
            number = len(given)
            if number >= _MOST_CALLS:
                raise RemotingTimeoutError(address, "enough")
            if first <= number < first + len(answers):
                answer = answers[number - first]
                answer.opaque = request.opaque
            else:
                answer = self._cluster.process_request(mock.Mock(), request)
            given.append(encode_command(answer))
            return answer

        arguments = _arguments(self._cluster, name)
        context = CommandContext(wait=lambda _seconds: True, now_ms=lambda: 1_700_000_000_000)
        out = io.StringIO()
        with (
            mock.patch.object(RemotingClient, "invoke_sync", invoke),
            mock.patch.object(RemotingClient, "start"),
            mock.patch.object(RemotingClient, "shutdown"),
            mock.patch("tempfile.tempdir", str(self._root)),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
            _directory(self._root),
        ):
            code = main([name, *arguments, "-n", MASTER], context)
        assert code in _EXITS, f"exit code {code}"
        assert "\x1b" not in out.getvalue(), "an answer reached the terminal as it was"
        return given

    def check(self) -> None:
        """Each run is alone."""

    def close(self) -> None:
        """Only files."""


@contextlib.contextmanager
def _directory(path: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir(before)


@functools.cache
def _seeds() -> Sequence[bytes]:
    """Every command with the last answer that it gets of a willing cluster, and the one before."""
    import tempfile

    found = []
    with tempfile.TemporaryDirectory() as scratch:
        operator = _Operator(Path(scratch))
        for number, name in enumerate(NAMES):
            given = operator.play(name, 0, [])
            for first in range(max(0, len(given) - 2), len(given)):
                if len(given[first]) < 6000:
                    found.append(bytes((number, min(first, 7))) + given[first])
    return found


def _mutate(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    if len(data) < 3 or rng.random() < 0.02:
        return mutate_bytes(rng, data, tokens)
    head = data[:2]
    if rng.random() < 0.1:
        head = bytes((rng.randrange(len(NAMES)), rng.randrange(4)))
    return head + mutate_frames(rng, data[2:], tokens)


ROWS = (
    Target(
        name="mqadmin",
        what="mqadmin's commands, answered by hostile brokers and name servers",
        world=_Operator,
        seeds=_seeds,
        rooms=("tools", "remoting"),
        mutate=_mutate,
        tokens=lambda: [b"\x1b[2J", b"127.0.0.2:20911", b"GTopic", b"broker-g", b"0", b"{}"],
        largest=8192,
    ),
)
