"""A controller in the name server's process: enableControllerInNamesrv, as in RocketMQ 5.

The one module of this room that knows the room of the controller. Both read one settings file; each
has its own port, loop, tables and admin requests, and this process's main thread runs the name
server, a second one the controller. A fault of either ends both, in order and with an exit code: a
name server that silently had no controller any more would be worse than one that is started again.

Tested by tests/namesrv/test_controller_in_namesrv.py.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from conf.config_loader import KeySpace
from conf.setting import Setting
from conf.standalone_program import Server
from conf.standalone_settings import StandaloneSettings
from controller import controller_startup
from controller.controller_opening import ERRORS, open_controller
from controller.controller_startup import ControllerOptions, controller_options

log = logging.getLogger(__name__)

__all__ = ["ERRORS", "ControllerOptions", "with_controller_beside"]
KEY: Final = "enableControllerInNamesrv"
_PORT: Final = int(controller_startup.PROGRAM_DEFAULTS["listenPort"])


def asks_for_controller(file: Sequence[Setting]) -> bool:
    """Whether a settings file sets enableControllerInNamesrv."""
    return any(one.key == KEY and one.text.strip().lower() == "true" for one in file)


def with_controller(keys: KeySpace) -> KeySpace:
    """The name server's keys and the controller's."""
    both = controller_startup.KEYS
    classes = tuple(dict.fromkeys((*keys.classes, *both.classes)))
    return KeySpace(classes, keys.ignored | both.ignored)


def controller_of(settings: StandaloneSettings) -> ControllerOptions:
    """The controller's options, from the name server's settings. Raises ConfigError."""
    return controller_options(settings, own_port=_PORT)


def shown_settings(controller: ControllerOptions | None) -> tuple[object, ...]:
    """What -p shows of it."""
    if controller is None:
        return ()
    return controller.controller, controller.etcd, controller.client


def with_controller_beside(
    program: str, namesrv: Server, controller: ControllerOptions, stack: ExitStack
) -> tuple[Server, str]:
    """Both as one server, and the controller's boot line. Raises ERRORS."""
    server, line = open_controller(program, controller, stack)
    return Pair(namesrv, server), line


class Pair:
    """Name server and controller. `run` on the process's main thread."""

    def __init__(self, namesrv: Server, controller: Server) -> None:
        self._namesrv = namesrv
        self._controller = controller
        self._fault: BaseException | None = None
        """Of the controller; written by its thread."""

    def run(self) -> None:
        """Serve until `request_stop` or a fault of one. Raises what ended it."""
        thread = threading.Thread(target=self._run_controller, name="ControllerMain")
        thread.start()
        try:
            self._namesrv.run()
        finally:
            self._controller.request_stop()
            thread.join()
        if self._fault is not None:
            raise self._fault

    def request_stop(self) -> None:
        """The controller first: brokers go on without it, and it gives its store back. Any thread,
        signal handlers."""
        self._controller.request_stop()

    def _run_controller(self) -> None:
        try:
            self._controller.run()
        except BaseException as error:
            log.exception("the controller in this name server failed: both end")
            self._fault = error
        finally:
            self._namesrv.request_stop()
