"""Pythons that this machine does not have, from the Debian releases that do: `interpreter("3.14")`.

Used by test_interpreters.py, and by hand: `python -m tests.packaging.debian_pythons 3.14` prints a
path for BROKER_PYTHON. debootstrap unpacks the release into a folder under build, once, as root;
the interpreter there is then told to take the loader and the libraries of its own release (a newer
glibc than this machine's), so that it runs here like any other: with this machine's compiler, git
and Java, without a chroot. test_fresh_machine.py has the whole of a release instead.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.packaging.whole_run import ROOT

RELEASES: Final = {"3.13": "trixie", "3.14": "sid"}
"""Version of Python, and the release of Debian that has it."""
ROOTS: Final = ROOT / "build/debian-pythons"
_TOOLS: Final = ("debootstrap", "patchelf")
_MULTIARCH: Final = "x86_64-linux-gnu"


class NotToBeHadError(Exception):
    """Why there is no such interpreter, in one sentence."""


def interpreter(version: str) -> Path:
    """Of `version`, made unless it is there. Raises NotToBeHadError."""
    if version not in RELEASES:
        raise NotToBeHadError(f"no release of Debian is known here for Python {version}")
    root = ROOTS / version
    with _locked():
        if not root.exists():
            _make(version, root)
    return root / f"usr/bin/python{version}"


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """One maker at a time; the lock ends with its process."""
    ROOTS.mkdir(parents=True, exist_ok=True)
    with open(ROOTS / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(version: str, root: Path) -> None:
    """Whole or not at all: it gets its name when it is finished."""
    if os.getuid() != 0 or os.uname().machine != "x86_64":
        raise NotToBeHadError(f"Python {version} from Debian needs root, and an x86-64 processor")
    _install_tools()
    unfinished = root.with_name(root.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    packages = f"--include=python{version}-venv,python{version}-dev"
    # What it mounts there ends with it, however it ends, and is never removed with the folder.
    debootstrap = ("unshare", "--mount", "debootstrap", "--variant=minbase", packages)
    _run(*debootstrap, RELEASES[version], str(unfinished))
    _settle(unfinished, version, root)
    shutil.rmtree(unfinished / "var")
    unfinished.rename(root)


def _install_tools() -> None:
    missing = [name for name in _TOOLS if not shutil.which(name)]
    if missing:
        _run("apt-get", "update")
        _run("apt-get", "install", "-y", "--no-install-recommends", *missing)


def _settle(root: Path, version: str, home: Path) -> None:
    """Everything that means /usr of the release is led to `home`, the later name of `root`."""
    usr = root / "usr"
    loader = home / "lib64/ld-linux-x86-64.so.2"
    # Not RUNPATH: what the interpreter loads, extension modules, finds its libraries here, too.
    libraries = ("--force-rpath", "--set-rpath", f"$ORIGIN/../lib/{_MULTIARCH}")
    _run("patchelf", "--set-interpreter", str(loader), *libraries, f"{usr}/bin/python{version}")
    # Debian's pyconfig.h asks the compiler's own folders for the one of this architecture.
    include = usr / "include"
    shutil.copy(
        include / _MULTIARCH / f"python{version}/pyconfig.h",
        include / f"python{version}/pyconfig.h",
    )
    # The pip that venv installs is not in ensurepip, but where this says.
    for built in (usr / f"lib/python{version}").glob("_sysconfigdata__linux_*.py"):
        text = built.read_text(encoding="utf-8")
        wheels = "/usr/share/python-wheels"
        built.write_text(text.replace(wheels, f"{home}{wheels}"), encoding="utf-8")


def _run(*command: str) -> None:
    """Raises NotToBeHadError with the end of what it printed."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        last = " / ".join(done.stdout.splitlines()[-3:])
        raise NotToBeHadError(f"{command[0]} ended with {done.returncode}: {last}")


def main(versions: Sequence[str]) -> int:
    """Print the interpreter of each of `versions`."""
    try:
        for version in versions:
            print(interpreter(version))
    except NotToBeHadError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
