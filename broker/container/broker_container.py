"""BrokerContainer: the brokers of one host that run under one process, added and removed while the
others run.

Whether a broker may be added is decided for one after the other; to wait until it serves or has
stopped is each request's own business (RocketMQ's do all of it one after the other, by
`synchronized`), so that a long recovery holds up nobody else. Requests run on the container's
request threads; the main thread looks for brokers that have ended, and stops all at the end. A
broker whose processes die is the business of its own supervisor; if that ends, too, the broker
leaves the table, the others keep running, and it may be added again. As in RocketMQ nothing of what
is added is kept: a restart finds the brokers of brokerConfigPaths. (Java: BrokerContainer.)
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Final

from broker.container.broker_identity import BrokerIdentity
from broker.container.contained_broker import CLEAN_ENDS, BrokerStartError, ContainedBroker
from broker.container.contained_options import (
    BrokerSettingsError,
    Claim,
    ContainedOptions,
    UnreadableSettingsError,
    check_claims,
    claims_of,
    container_claims,
    load_contained_options,
)
from broker.container.container_startup import ContainerOptions
from broker.container.core_pairs import cores_of_slot, usable_cores
from remoting.errors import RequestError
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

BROKER_NOT_EXIST: Final = ResponseCode(211)
"""5.x's meaning of this number (remoting/response_code.py)."""


class BrokerContainer:
    """The table of brokers. Guarded by: its lock, which is never held while a process starts or
    stops. `_adding` is held from the look at what is there until the new one is in the table."""

    def __init__(
        self,
        options: ContainerOptions,
        namesrv_addr: str,
        environment: Mapping[str, str],
        *,
        life_fd: int,
        is_pinning: Callable[[], bool],
        say: Callable[[str], None],
    ) -> None:
        """namesrv_addr: name servers of all brokers, separated by ';'. life_fd: see
        ContainedBroker. is_pinning: whether a broker that is started now stays on its own cores.
        say: prints a line for the user who started the container."""
        self._options = options
        self._namesrv_addr = namesrv_addr
        self._environment = environment
        self._life_fd = life_fd
        self._is_pinning = is_pinning
        self._say = say
        self._lock = threading.Lock()
        self._adding = threading.Lock()
        self._brokers: dict[BrokerIdentity, ContainedBroker] = {}
        self._cancel_read, self._cancel_write = os.pipe2(os.O_CLOEXEC)
        self.is_stopping = False
        """Set by `stop_starting`."""

    def brokers(self) -> list[ContainedBroker]:
        """Those in the table, in the order in which they came."""
        with self._lock:
            return list(self._brokers.values())

    # -- settings --------------------------------------------------------------------------------

    def load_configured(self) -> list[ContainedOptions]:
        """The brokers that the container is started with. Raises BrokerSettingsError for the first
        that cannot be started beside the others."""
        found: list[ContainedOptions] = []
        for path in self._options.broker_files:
            contained = self._load(path)
            _check_new(contained, found)
            check_claims(contained, self._taken(found))
            found.append(contained)
        return found

    def _load(self, path: Path) -> ContainedOptions:
        return load_contained_options(path, self._options, self._namesrv_addr, self._environment)

    def _taken(self, there: Iterable[ContainedOptions]) -> list[Claim]:
        brokers = [claim for contained in there for claim in claims_of(contained)]
        return [*container_claims(self._options), *brokers]

    # -- starting --------------------------------------------------------------------------------

    def start_configured(self, configured: Sequence[ContainedOptions]) -> list[ContainedBroker]:
        """Start the processes of these brokers. Raises BrokerStartError."""
        with self._adding:
            return [self._spawn(contained) for contained in configured]

    def await_configured(self, brokers: Sequence[ContainedBroker]) -> None:
        """Wait until these, which have been started, serve. Raises BrokerStartError as soon as one
        does not start; the others are stopped then."""
        with ThreadPoolExecutor(max(len(brokers), 1), "AwaitConfigured") as pool:
            for awaited in as_completed(pool.submit(self._await_serving, each) for each in brokers):
                try:
                    awaited.result()
                except BrokerStartError:
                    if self.is_stopping:
                        return
                    self.stop_starting()
                    raise

    def add_broker(self, path: Path) -> BrokerIdentity:
        """Start the broker of a settings file, and wait until it serves.

        Raises RequestError: SYSTEM_ERROR with what is wrong. Nothing of the broker is left then.
        """
        if self.is_stopping:
            raise _system_error("start broker failed, the broker container stops")
        # Not under the lock: a file system that hangs holds up nobody else.
        contained = self._load_added(path)
        try:
            with self._adding:
                broker = self._spawn_beside(contained, [each.contained for each in self.brokers()])
            if not self._await_serving(broker):
                raise BrokerStartError(
                    f"{broker.identity.canonical_name}: it was removed in the meantime"
                )
        except BrokerStartError as error:
            raise _system_error(f"start broker failed, {error}") from error
        return broker.identity

    def _load_added(self, path: Path) -> ContainedOptions:
        """Raises RequestError."""
        try:
            return self._load(path)
        except UnreadableSettingsError as error:
            raise _system_error(f"addBroker properties empty: {error}") from error
        except BrokerSettingsError as error:
            raise _system_error(str(error)) from error

    def _spawn_beside(
        self, contained: ContainedOptions, there: Sequence[ContainedOptions]
    ) -> ContainedBroker:
        """Raises RequestError, BrokerStartError."""
        try:
            _check_new(contained, there)
        except BrokerSettingsError as error:
            raise _system_error(str(error)) from error
        try:
            check_claims(contained, self._taken(there))
        except BrokerSettingsError as error:
            raise BrokerStartError(str(error)) from error
        return self._spawn(contained)

    def _spawn(self, contained: ContainedOptions) -> ContainedBroker:
        """Start the broker's process and put it into the table. Raises BrokerStartError."""
        identity = contained.identity
        with self._lock:
            taken = {broker.slot for broker in self._brokers.values()}
        slot = next(number for number in range(len(taken) + 1) if number not in taken)
        try:
            broker = ContainedBroker(
                contained,
                log_dir=contained.log_dir,
                slot=slot,
                cores=cores_of_slot(usable_cores(), slot) if self._is_pinning() else (),
                life_fd=self._life_fd,
                environment=self._environment,
            )
        except OSError as error:
            raise BrokerStartError(f"{identity.canonical_name}: {error}") from error
        with self._lock:
            self._brokers[identity] = broker
        return broker

    def _await_serving(self, broker: ContainedBroker) -> bool:
        """Wait until it serves; one that does not leaves the table. False for one that was removed
        meanwhile. Raises BrokerStartError."""
        name = broker.identity
        try:
            status = broker.wait_serving(self._cancel_read)
        except BrokerStartError as error:
            if broker.is_removed:
                return False
            self._forget(broker)
            log.error("%s: not started: %s", name.canonical_name, error)
            raise BrokerStartError(f"{name.canonical_name}: {error}") from error
        log.info("%s: pid %s: %s", name.canonical_name, broker.pid, status.boot_line)
        self._say(f"Broker [{name.broker_name}-{name.broker_id}] boot success. serializeType=JSON")
        if status.write_refusal:
            text = "%s: the store rejects writes: %s"
            log.error(text, name.canonical_name, status.write_refusal)
        return True

    def _forget(self, broker: ContainedBroker) -> None:
        with self._lock:
            if self._brokers.get(broker.identity) is broker:
                del self._brokers[broker.identity]

    # -- removing and watching -------------------------------------------------------------------

    def remove_broker(self, identity: BrokerIdentity) -> None:
        """Stop a broker in order, also one that does not serve yet.

        Raises RequestError: BROKER_NOT_EXIST; SYSTEM_ERROR if its stop failed, though it is
        removed.
        """
        with self._lock:
            broker = self._brokers.get(identity)
        if broker is None:
            raise RequestError(BROKER_NOT_EXIST, "Broker not exist")
        broker.is_removed = True
        broker.ask_to_stop()
        code = broker.wait_stopped()
        self._forget(broker)
        if code not in CLEAN_ENDS:
            words = _failed_stop(broker, code)
            log.error("%s", words)
            raise _system_error(f"removed, but {words}")
        log.info("%s: removed", identity.canonical_name)

    def watch(self) -> None:
        """Take brokers that have ended by themselves out of the table. Main thread."""
        for broker in self.brokers():
            code = broker.exit_code()
            if code is None or broker.is_stopping or not broker.is_serving:
                continue
            self._forget(broker)
            log.error(
                "%s: ended with code %s and is no longer in this container (its log files: %s); "
                "the other brokers keep running. Start it again with mqadmin addBroker -b %s",
                broker.identity.canonical_name,
                code,
                broker.log_dir,
                broker.contained.options.config_file,
            )

    # -- the end -------------------------------------------------------------------------------

    def stop_starting(self) -> None:
        """A broker that does not serve yet is stopped, and so is each that would be started. Any
        thread."""
        self.is_stopping = True
        os.write(self._cancel_write, b"\0")

    def stop_all(self) -> list[str]:
        """Stop every broker, the slaves before the masters, those of one kind side by side; returns
        what went wrong. Main thread, when nothing is added or removed any more."""
        problems = []
        for is_slave in (True, False):
            some = [
                each for each in self.brokers() if each.contained.options.store.is_slave == is_slave
            ]
            for broker in some:
                broker.ask_to_stop()
            for broker in some:
                code = broker.wait_stopped()
                self._forget(broker)
                if code not in CLEAN_ENDS:
                    problems.append(_failed_stop(broker, code))
                else:
                    log.info("%s: stopped", broker.identity.canonical_name)
        return problems


def _check_new(contained: ContainedOptions, there: Iterable[ContainedOptions]) -> None:
    if any(other.identity == contained.identity for other in there):
        name = contained.identity.canonical_name
        raise BrokerSettingsError(f"{name} has already been added to current broker container")


def _failed_stop(broker: ContainedBroker, code: int) -> str:
    name = broker.identity.canonical_name
    return f"{name} ended with code {code} when it stopped (its log files: {broker.log_dir})"


def _system_error(remark: str) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, remark)
