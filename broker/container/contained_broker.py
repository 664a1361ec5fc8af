"""ContainedBroker: the supervisor process of one broker in the container, from start to end.

Used by the container's threads under the rules of broker_container.py. The process is a fresh
interpreter in a process group of its own and starts its broker as bin/mqbroker does
(broker/processes/contained.py). Knows processes and pipes, not which brokers may be there.

Tested by tests/broker/container/test_broker_container.py.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from broker.container.broker_identity import BrokerIdentity
from broker.container.contained_info import BrokerStatus, ContainedInfo
from broker.container.contained_options import ContainedOptions

_MODULE: Final = "broker.processes.contained"
_HOME: Final = Path(__file__).resolve().parents[2]
_LONGEST_STATUS: Final = 64 << 10
_STOP_S: Final = 20.0
_read_status: Final = msgspec.json.Decoder(BrokerStatus).decode
"""Longer than a broker takes: its supervisor kills a process that has not stopped within 10 s."""
CLEAN_ENDS: Final = (0, -signal.SIGTERM)
"""Exit codes of a broker that was asked to stop; the second before it has opened anything."""


class BrokerStartError(Exception):
    """A broker did not start; nothing of it runs any more. The text says why."""


class ContainedBroker:
    """One broker's process. `wait_serving` is called once, by the thread that started it; what else
    it does any thread may ask for."""

    def __init__(
        self,
        contained: ContainedOptions,
        *,
        log_dir: Path,
        slot: int,
        cores: tuple[int, ...],
        life_fd: int,
        environment: Mapping[str, str],
    ) -> None:
        """Start it. slot, cores: its place among the pairs of cores; no cores: it is not pinned.
        life_fd: the reading end of a pipe that this process holds open. Raises OSError."""
        self.contained = contained
        self.slot = slot
        self.log_dir = log_dir
        self.is_stopping = False
        """Whether the container has asked it to stop."""
        self.is_removed = False
        """Whether removeBroker has asked for it."""
        self.is_serving = False
        """Whether `wait_serving` has returned."""
        self._status, status = os.pipe2(os.O_CLOEXEC)
        try:
            info = _info(contained, str(log_dir), cores, life_fd, status)
            self._process = _spawn(info, environment)
        except OSError:
            os.close(self._status)
            raise
        finally:
            os.close(status)

    @property
    def identity(self) -> BrokerIdentity:
        """What tells it from the others."""
        return self.contained.identity

    @property
    def pid(self) -> int:
        """Of its supervisor."""
        return self._process.pid

    def wait_serving(self, cancel_fd: int) -> BrokerStatus:
        """Wait until it serves; returns what it said of that. Raises BrokerStartError, also when
        cancel_fd becomes readable first: it is stopped then."""
        try:
            status = self._read_status(cancel_fd)
        finally:
            os.close(self._status)
        if status.boot_line:
            self.is_serving = True
            return status
        self.ask_to_stop()
        code = self.wait_stopped()
        failure = status.failure or f"its process ended with code {code}"
        raise BrokerStartError(f"{failure} (see the log files in {self.log_dir})")

    def _read_status(self, cancel_fd: int) -> BrokerStatus:
        poll = select.poll()
        poll.register(self._status, select.POLLIN)
        poll.register(cancel_fd, select.POLLIN)
        received = b""
        while not received.endswith(b"\n") and len(received) < _LONGEST_STATUS:
            ready = {fd for fd, _events in poll.poll()}
            if self._status not in ready:
                return BrokerStatus(failure="the broker container stops")
            part = os.read(self._status, 4096)
            if not part:
                return BrokerStatus()
            received += part
        return _read_status(received)

    def exit_code(self) -> int | None:
        """None while it runs; a signal's number, negative."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """SIGTERM; its supervisor stops its processes in order. Idempotent."""
        self.is_stopping = True
        # One that was stopped (SIGSTOP) acts on it only when it is continued.
        for number in (signal.SIGTERM, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    def wait_stopped(self) -> int:
        """Wait for its end; a supervisor that does not stop in time is killed, and the broker's
        other processes then stop by themselves. Returns the exit code."""
        try:
            return self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


def _info(
    contained: ContainedOptions,
    log_dir: str,
    cores: tuple[int, ...],
    life_fd: int,
    status_fd: int,
) -> ContainedInfo:
    options = contained.options
    return ContainedInfo(
        canonical_name=contained.identity.canonical_name,
        settings=options.child_settings(),
        config_file=str(options.config_file or ""),
        namesrv_addresses=options.namesrv_addresses,
        warnings=options.warnings,
        log_dir=log_dir,
        cores=cores,
        life_fd=life_fd,
        status_fd=status_fd,
    )


def _spawn(info: ContainedInfo, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    fd = os.memfd_create("mqbrokercontainer-broker")
    try:
        os.write(fd, msgspec.json.encode(info))
        return subprocess.Popen(
            [sys.executable, "-m", _MODULE, str(fd)],
            pass_fds=(fd, info.life_fd, info.status_fd),
            env={**environment, "PYTHONPATH": str(_HOME)},
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
    finally:
        os.close(fd)
