"""The controller: `python -m controller` (bin/mqcontroller).

How it starts and ends is in conf/standalone_program.py, what it opens in
controller/controller_opening.py.
Kin: ControllerStartup.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import Final

from conf.installation import enter_program
from conf.standalone_program import Opened, Program, run_program
from controller.controller_opening import ERRORS, open_controller
from controller.controller_startup import PROGRAM, ControllerOptions, load_controller_options


def run() -> int:
    """The console script `mqcontroller` of an installed wheel."""
    enter_program(PROGRAM, sys.argv[1:], os.environ)
    return main()


def main() -> int:
    """Run the controller with this process's command line; returns the exit code."""
    return run_program(_PROGRAM)


def _open(options: ControllerOptions, stack: ExitStack) -> Opened:
    return Opened(*open_controller(PROGRAM, options, stack))


_PROGRAM: Final = Program(
    PROGRAM,
    "controller",
    load_controller_options,
    _open,
    ERRORS,
)


if __name__ == "__main__":
    sys.exit(main())
