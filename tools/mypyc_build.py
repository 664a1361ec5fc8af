"""`python -m tools.mypyc_build LEVEL`: has mypyc and the C compiler work in the current directory.

A process of its own, started by mqcompile in a copy of the sources: both write much, to stdout, and
end the process when they fail. Leaves the libraries below BUILT. LEVEL: how much the C compiler
optimizes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from mypyc.build import mypycify
from setuptools import Distribution

from conf.compiled_modules import GROUP
from tools.compiled_module_list import COMPILED_MODULES
from tools.mqcompile import BUILT

FLAGS: Final = ("-fno-semantic-interposition", "-Wno-misleading-indentation")
"""The first: functions of the library call one another directly, and may be inlined; nobody
replaces them by others of the same name when it is loaded (docs/compiled_modules.md). The second is
a warning of -Wall, which Python's own options have: mypyc indents to hundreds of columns, and GCC
looked at all of them for 40 seconds."""
_SETTINGS: Final = """[mypy]
explicit_package_bases = True
follow_imports = silent
ignore_missing_imports = True
"""
"""Those of setup.cfg, which a wheel does not have, are for bin/test, which checks types."""


def main(level: str) -> None:
    """Raises SystemExit when something does not compile."""
    settings = Path("mypy.ini")
    settings.write_text(_SETTINGS)
    paths = [f"{name.replace('.', '/')}.py" for name in COMPILED_MODULES]
    extensions = mypycify(
        ["--config-file", str(settings), *paths],
        opt_level=level,
        debug_level="0",
        group_name=GROUP,
        target_dir="c",
    )
    for extension in extensions:
        # What another C compiler warns of is no reason not to compile.
        flags = extension.extra_compile_args
        kept = [flag for flag in flags if flag != "-Werror"]
        extension.extra_compile_args = [*kept, *FLAGS]
    command = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    command.build_lib, command.build_temp = BUILT, "objects"
    command.parallel = len(os.sched_getaffinity(0))
    command.ensure_finalized()
    command.run()


if __name__ == "__main__":
    main(sys.argv[1])
