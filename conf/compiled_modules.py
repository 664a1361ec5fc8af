"""The compiled modules of a broker: whether they may be used, and the finder that imports them.

`mqcompile` (tools/mqcompile.py) compiles the modules that lie on the way of a message and leaves
them in a directory beside the sources, with a manifest: which source and which compiled file has
which SHA-256. A broker uses them if each of these is still what it was then, and otherwise runs
the sources and says why: a compiled file that was cut short would end each process without a word
(SIGBUS). Runs when package `broker` is imported, before any module that may be compiled: the
compiled ones call each other without asking Python, so that a process has all of them or none.
Reads files and the environment only. Operations: docs/compiled_modules.md.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

from conf.installation import INSTALL_DIRECTORY

log = logging.getLogger(__name__)

ROOMS: Final = ("broker", "conf", "ha", "ipc", "remoting", "store")
"""What a broker is made of. A compiled module holds constants of the others, too."""
VARIABLE: Final = "ROCKETMQ_COMPILED"
OFF: Final = "off"
REQUIRED: Final = "required"
MANIFEST: Final = "manifest.json"
GROUP: Final = "rocketmq_compiled"
LIBRARY: Final = f"{GROUP}__mypyc"
"""What mypyc calls the library of a group; the modules themselves are shells around it."""
LIBRARY_SUFFIX: Final = EXTENSION_SUFFIXES[0]
"""Of extension modules of this Python; others do not load in it."""


class CompiledModulesError(Exception):
    """The environment asks for compiled modules that cannot be used, or for nonsense."""


@dataclass(frozen=True, slots=True)
class ModulesInUse:
    """What a process runs. Immutable."""

    compiled: int = 0
    """How many modules are compiled ones; 0: none."""
    why_not: str = ""
    """Why there is none."""
    is_stale: bool = False
    """There are some, and they are not of these sources."""

    @property
    def text(self) -> str:
        """For a log."""
        if self.compiled:
            return f"{self.compiled} modules are compiled ones"
        return f"no module is a compiled one: {self.why_not}"


class _Finder:
    """Finds compiled modules: an entry of sys.meta_path."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See importlib.abc.MetaPathFinder."""
        path = self._files.get(name)
        if path is None:
            return None
        return spec_from_file_location(name, path, loader=ExtensionFileLoader(name, str(path)))


_in_use = ModulesInUse(why_not="nobody asked for them")


def modules_in_use() -> ModulesInUse:
    """What this process, and what it forks, runs."""
    return _in_use


def count_usable(environment: Mapping[str, str], home: Path = INSTALL_DIRECTORY) -> int:
    """How many compiled modules a broker would run that starts now with `environment`."""
    if environment.get(VARIABLE) == OFF or find_staleness(home) is not None:
        return 0
    return len(compiled_modules(home))


def log_modules_in_use() -> None:
    """Say it in this process's log; as a warning where somebody compiled modules in vain."""
    log.log(logging.WARNING if _in_use.is_stale else logging.INFO, "%s", _in_use.text)


def compiled_directory(home: Path = INSTALL_DIRECTORY) -> Path:
    """Where `mqcompile` leaves them, for this Python."""
    return home / GROUP / LIBRARY_SUFFIX.strip(".").removesuffix(".so")


def use_compiled_modules(
    environment: Mapping[str, str], home: Path = INSTALL_DIRECTORY
) -> ModulesInUse:
    """Have this process import compiled modules from now on, if it can. Raises
    CompiledModulesError."""
    global _in_use
    wanted = environment.get(VARIABLE, "")
    if wanted not in ("", OFF, REQUIRED):
        raise CompiledModulesError(f"{VARIABLE}={wanted}: must be {OFF}, {REQUIRED} or not set")
    if _in_use.compiled:
        return _in_use
    _in_use = ModulesInUse(why_not=f"{VARIABLE}={OFF}") if wanted == OFF else _use(home)
    if wanted == REQUIRED and not _in_use.compiled:
        raise CompiledModulesError(f"{VARIABLE}={REQUIRED}, but {_in_use.text}")
    return _in_use


def _use(home: Path) -> ModulesInUse:
    directory = compiled_directory(home)
    if not directory.exists():
        return ModulesInUse(why_not=f"there is none in {directory} (mqcompile makes them)")
    why = find_staleness(home)
    if why is None:
        modules = compiled_modules(home)
        loaded = sorted(sys.modules.keys() & set(modules))
        if loaded:
            return ModulesInUse(why_not=f"{loaded[0]} was imported before package broker")
        finder = _Finder({name: _file(directory, name) for name in (LIBRARY, *modules)})
        sys.meta_path.insert(0, finder)
        try:
            # All of them are in it: where it can be loaded, they can.
            importlib.import_module(LIBRARY)
            return ModulesInUse(compiled=len(modules))
        except ImportError as error:
            sys.meta_path.remove(finder)
            why = f"{_file(directory, LIBRARY)} cannot be loaded: {error}"
    return ModulesInUse(why_not=f"{why}; run mqcompile again, or mqcompile --remove", is_stale=True)


def compiled_modules(home: Path = INSTALL_DIRECTORY) -> list[str]:
    """The names in the manifest. Raises OSError, ValueError, KeyError."""
    return list(json.loads((compiled_directory(home) / MANIFEST).read_text())["modules"])


def _file(directory: Path, name: str) -> Path:
    return directory / f"{name}{LIBRARY_SUFFIX}"


def find_staleness(home: Path = INSTALL_DIRECTORY) -> str | None:
    """Why the compiled modules cannot be used with these sources; None: they can."""
    directory = compiled_directory(home)
    if not directory.exists():
        return f"there is none in {directory}"
    path = directory / MANIFEST
    try:
        manifest = json.loads(path.read_text())
        before, files = manifest["sources"], manifest.get("files")
        names = [_file(directory, name).name for name in (LIBRARY, *manifest["modules"])]
        if files is None or not set(names) <= files.keys():
            return f"{path} does not say what its files held (it is of an older mqcompile)"
        for name in names:
            if (damage := _find_damage(directory / name, files[name])) is not None:
                return damage
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        return f"{path} cannot be read: {error!r}"
    try:
        now = source_digests(home)
    except OSError as error:
        return str(error)
    changed = sorted(
        name for name in before.keys() | now.keys() if before.get(name) != now.get(name)
    )
    if changed:
        return f"{changed[0]} is not what it was when they were compiled"
    return None


def _find_damage(file: Path, digest: str) -> str | None:
    """Why a compiled file is not what was compiled; None: it is. Raises OSError."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return f"{file} is missing"
    if hashlib.sha256(data).hexdigest() == digest:
        return None
    return f"{file} is not what was compiled: it was damaged or cut short ({len(data)} bytes)"


def file_digests(directory: Path) -> dict[str, str]:
    """SHA-256 of every compiled file in `directory`, by its name. Raises OSError."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.glob(f"*{LIBRARY_SUFFIX}")
    }


def source_digests(home: Path) -> dict[str, str]:
    """SHA-256 of every source of a broker, by its path below `home`. Raises OSError."""
    return {
        str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest()
        for room in ROOMS
        for path in (home / room).rglob("*.py")
    }
