"""The build backend that pyproject.toml names: setuptools', which also compiles modules.

Runs in a process of pip, build or uv, in a checkout or an unpacked sdist; not a part of any program
of the product, and imports no library but setuptools. A wheel gets the compiled modules in the
directory where `mqcompile` leaves them, with their manifest, and the tag of this Python and
machine, where all that compiles them is there. ROCKETMQ_COMPILED chooses, as it does for a broker:
`off` builds a wheel for every Python, `required` builds none rather than that. docs/releasing.md.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from setuptools import Distribution, build_meta
from setuptools.command.build_ext import build_ext

# Not as a path of the backend, whose directory `packaging` would hide the library of that name.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from conf.compiled_modules import OFF, REQUIRED, VARIABLE, compiled_directory
from tools import mqcompile
from tools.mqcompile import CompileError
from tools.prepare_venv import PROJECT, read_requirements

build_sdist = build_meta.build_sdist
build_editable = build_meta.build_editable
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel

_Settings = Mapping[str, Any] | None

_arguments: dict[str, Any] = {}
"""What setup.py passes to setuptools in the build under way."""


def setup_arguments() -> Mapping[str, Any]:
    """For setup.py, which setuptools runs in the process of the backend."""
    return _arguments


def get_requires_for_build_wheel(config_settings: _Settings = None) -> list[str]:
    """setuptools' own, and mypyc where it has a compiler to work with."""
    required = build_meta.get_requires_for_build_wheel(config_settings)
    wanted = _wanted()
    if wanted != OFF and (wanted == REQUIRED or mqcompile.find_missing_compiler() is None):
        # All of them: without the types of numpy and msgspec mypyc compiles other code, or none.
        groups = read_requirements(PROJECT / "setup.cfg", ["fast"]).values()
        required += [line for lines in groups for line in lines if not line.startswith("#")]
    return required


def build_wheel(
    wheel_directory: str, config_settings: _Settings = None, metadata_directory: str | None = None
) -> str:
    """The file name of the wheel. Ends the process when it cannot be built."""
    wanted = _wanted()
    if wanted != OFF:
        try:
            mqcompile.check_tools()
            with _building(distclass=_PlatformDistribution, cmdclass={"build_ext": _BuildModules}):
                return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
        except CompileError as error:
            if wanted == REQUIRED:
                sys.exit(f"{VARIABLE}={REQUIRED}, but the modules cannot be compiled: {error}")
            sys.stderr.write(f"this wheel has no compiled modules: {error}\n")
    with _building():
        return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def _wanted() -> str:
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", OFF, REQUIRED):
        sys.exit(f"{VARIABLE}={wanted}: must be {OFF}, {REQUIRED} or not set")
    return wanted


@contextmanager
def _building(**arguments: Any) -> Iterator[None]:
    """Have setuptools build in an empty directory: what an earlier build left in `build` would be
    in the wheel, too."""
    with tempfile.TemporaryDirectory(prefix="rocketmq-build-") as base:
        _arguments.update(arguments, options={"build": {"build_base": base}})
        try:
            yield
        finally:
            _arguments.clear()


class _PlatformDistribution(Distribution):
    """One whose wheel is of this Python and machine."""

    def has_ext_modules(self) -> bool:
        """Has `build` run build_ext, and the wheel be unpacked beside other compiled ones."""
        return True


class _BuildModules(build_ext):
    """Compiles the sources that go into the wheel, which the manifest is to be of."""

    def run(self) -> None:
        """After build_py. Raises CompileError, OSError."""
        home = Path(self.build_lib)
        directory = compiled_directory(home)
        directory.parent.mkdir()
        with tempfile.TemporaryDirectory(prefix="rocketmq-modules-") as work:
            made = mqcompile.compile_modules(home, Path(work), strip=True)
            shutil.move(made, directory)
