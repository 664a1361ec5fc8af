"""`python -m broker.processes.contained FD`: the supervisor of one broker in a container.

Started by the container (broker/container/contained_broker.py), with its checked settings in a
memfd. From there on it is the supervisor process that bin/mqbroker is, with the same children,
except that it tells the container how its start went, stops when the container has ended, and is
found by no bin/mqshutdown: whoever stops a broker of a container asks the container.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import select
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import setproctitle

from broker.container.contained_info import BrokerStatus, ContainedInfo
from broker.processes.supervising import BrokerProcess
from broker.settings.startup_options import StartupOptions
from broker.slave.promotion import check_promotion, complete_promotion
from broker.supervisor.descriptor_limit import raise_descriptor_limit
from broker.supervisor.listening_sockets import PortTakenError
from conf.command_line import check_home
from conf.errors import EXIT_CANNOT_START, ConfigError, StartupExitError
from conf.file_permissions import set_umask
from conf.logging_setup import configure_logging
from ipc.clock import process_clock
from store.disk_fault_hooks import install_disk_faults
from store.errors import StoreError

log = logging.getLogger("broker.container")

_read_info: Final = msgspec.json.Decoder(ContainedInfo).decode


def main(fd: int) -> int:
    """Run the broker described by the memfd; returns its exit code, bin/mqbroker's."""
    info = _read_info(os.pread(fd, os.fstat(fd).st_size, 0))
    os.close(fd)
    status = _StatusPipe(info.status_fd)
    try:
        return _run(info, status)
    except StartupExitError as error:
        status.tell(BrokerStatus(failure=error.text))
        return error.exit_code
    except (PortTakenError, ConfigError, StoreError, OSError) as error:
        status.tell(BrokerStatus(failure=str(error)))
    return EXIT_CANNOT_START


class _StatusPipe:
    """Tells the container once how the start went. Owned by: the main thread."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd

    def tell(self, status: BrokerStatus) -> None:
        """The first call counts. A container that is gone hears nothing."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        try:
            os.write(fd, msgspec.json.encode(status) + b"\n")
        except BrokenPipeError:
            log.warning("the broker container no longer listens")
        finally:
            os.close(fd)


def _run(info: ContainedInfo, status: _StatusPipe) -> int:
    warning = install_disk_faults(os.environ)
    options = _options(info)
    check_home(options.broker.rocketmq_home)
    check_promotion(options)
    setproctitle.setproctitle(f"mqbroker: supervisor {info.canonical_name}")
    set_umask(options.files)
    configure_logging(
        "supervisor",
        info.log_dir,
        level=options.logging.log_level,
        console=True,
        console_prefix=f"{info.canonical_name}: ",
    )
    if warning is not None:
        log.critical(warning)
    raise_descriptor_limit()
    if info.cores:
        os.sched_setaffinity(0, info.cores)
        log.info("all processes of this broker stay on the cores %s", info.cores)
    process = BrokerProcess(
        options,
        info.log_dir,
        process_clock(),
        writes_pid_file=False,
        on_serving=lambda line, refusal: status.tell(
            BrokerStatus(boot_line=line, write_refusal=refusal)
        ),
        each_tick=_end_with_container(info.life_fd),
    )
    process.open()
    complete_promotion(options)
    code = process.run()
    status.tell(BrokerStatus(failure=process.stop_reason or "it was stopped while it started"))
    return code


def _options(info: ContainedInfo) -> StartupOptions:
    return dataclasses.replace(
        StartupOptions.from_settings(info.settings),
        config_file=Path(info.config_file) if info.config_file else None,
        namesrv_addresses=info.namesrv_addresses,
        warnings=info.warnings,
    )


def _end_with_container(life_fd: int) -> Callable[[], None]:
    """A function that requests the orderly stop once the container has ended for any reason. To be
    called periodically: a thread would keep the supervisor from forking its children."""
    poll = select.poll()
    poll.register(life_fd, select.POLLIN)

    def check() -> None:
        if poll.poll(0):
            poll.unregister(life_fd)
            log.error("the broker container has died: stopping")
            signal.raise_signal(signal.SIGTERM)

    return check


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
