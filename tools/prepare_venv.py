"""Creates the virtual environment that the launchers run in, unless it is ready.

Run by `bin/setup-env.sh` before every start with a plain Python >= 3.11: standard library only,
and no module of the project may be imported. What to install is read from setup.cfg; a stamp
inside the environment records what was installed, so that a changed list is installed again. A
file lock lets one launcher work while others wait. All messages go to stderr: stdout belongs to
the boot line. On failure: exit code 1 and one line that says what to do.
"""

from __future__ import annotations

import argparse
import configparser
import contextlib
import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

PROJECT: Final = Path(__file__).resolve().parent.parent
STAMP: Final = "installed.json"
PIP_LOG: Final = "pip.log"
ROOMS: Final = ("broker", "conf", "ha", "ipc", "namesrv", "remoting", "store")
"""What the first command of the README imports."""
_NAME_END: Final = re.compile(r"[<>=~!;\[]")
_NETWORK_WORDS: Final = (
    "NewConnectionError",
    "NameResolutionError",
    "Failed to establish",
    "Temporary failure in name resolution",
    "ConnectTimeout",
    "Read timed out",
    "ProxyError",
    "Network is unreachable",
    "No matching distribution found",
    "Could not find a version",
)


class SetupError(Exception):
    """The problem and its remedy, in one line."""


def main(arguments: Sequence[str]) -> int:
    """`--venv DIR [--extra NAME]...`: 0 when the environment is ready."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--extra", action="append", default=[])
    parser.add_argument("--program", default="setup")
    given = parser.parse_args(arguments)
    try:
        report_other_python(given.venv, given.program, os.environ.get("BROKER_PYTHON", ""))
        prepare(given.venv, read_requirements(PROJECT / "setup.cfg", given.extra), given.program)
    except SetupError as error:
        print(f"{given.program}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{given.program}: interrupted; start again to continue", file=sys.stderr)
        return 1
    return 0


def read_requirements(path: Path, extras: Sequence[str]) -> dict[str, list[str]]:
    """Requirement lines of setup.cfg by group: "base", and each extra."""
    config = configparser.ConfigParser(interpolation=None)
    config.read(path, encoding="utf-8")
    groups = {"base": config["options"]["install_requires"]}
    for extra in extras:
        groups[extra] = config["options.extras_require"][extra]
    return {name: [ln for ln in text.splitlines() if ln] for name, text in groups.items()}


def prepare(venv: Path, groups: dict[str, list[str]], program: str) -> None:
    """Installs every group into `venv`. Raises SetupError."""
    wanted = {name: _digest(lines) for name, lines in groups.items()}
    if _is_ready(venv, wanted):
        return
    with _locked(venv, program):
        if not _is_ready(venv, wanted):
            with _own_bytecode(is_wanted=not _is_usable(venv)):
                _create(venv, program)
                _install(venv, groups, program)
            _write_stamp(venv, wanted)


def report_other_python(venv: Path, program: str, wanted: str) -> None:
    """Say that `venv` has another Python than `wanted`, the BROKER_PYTHON of the user; it is used
    all the same. Empty: none is wanted."""
    if not wanted:
        return
    question = [wanted, "-I", "-c", "import sys; print(*sys.version_info[:2], sep='.')"]
    asked = subprocess.run(question, capture_output=True, text=True, check=False)
    version = ".".join(map(str, sys.version_info[:2]))
    if asked.returncode == 0 and asked.stdout.strip() != version:
        _say(
            program,
            f"{venv} was made with Python {version}, which is used; BROKER_PYTHON is "
            f"{asked.stdout.strip()}: remove that directory to have it made again",
        )


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _is_ready(venv: Path, wanted: dict[str, str]) -> bool:
    """Raises SetupError for an interpreter that this user may not look at."""
    stamp = _read_stamp(venv)
    python = venv / "bin" / "python"
    try:
        there = python.exists()
    except PermissionError as error:  # a link into a directory of another user
        way_out = (
            "make its target readable for this user, or set BROKER_VENV to a directory of your own"
        )
        raise SetupError(f"cannot use {python}: {error.strerror}; {way_out}") from error
    return there and all(stamp.get(name) == value for name, value in wanted.items())


def _read_stamp(venv: Path) -> dict[str, str]:
    try:
        return dict(json.loads((venv / STAMP).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _write_stamp(venv: Path, wanted: dict[str, str]) -> None:
    new = venv / f"{STAMP}.tmp"
    new.write_text(json.dumps(_read_stamp(venv) | wanted), encoding="utf-8")
    new.replace(venv / STAMP)


@contextlib.contextmanager
def _locked(venv: Path, program: str) -> Iterator[None]:
    """One launcher at a time; the lock is released when its process ends, for whatever reason."""
    path = venv.with_name(venv.name + ".lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path, "w", encoding="utf-8")  # noqa: SIM115 - closed below
    except OSError as error:
        way_out = "make it writable, or set BROKER_VENV to a directory that is"
        raise SetupError(f"cannot write {path}: {error.strerror}; {way_out}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say(program, f"another start is preparing {venv}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_usable(venv: Path) -> bool:
    """Whether there is an environment whose interpreter works."""
    python = venv / "bin" / "python"
    return python.exists() and _runs([str(python), "-c", "import pip"])


@contextlib.contextmanager
def _own_bytecode(*, is_wanted: bool) -> Iterator[None]:
    """Python compiles the project's modules meanwhile, as the first start would: pip waits for
    much, and uses one processor."""
    if not is_wanted or os.environ.get("PYTHONDONTWRITEBYTECODE"):
        yield
        return
    with subprocess.Popen(
        [sys.executable, "-m", "compileall", "-q", *ROOMS],
        cwd=PROJECT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ):
        yield


def _create(venv: Path, program: str) -> None:
    """A fresh environment, unless there is one whose interpreter works."""
    if _is_usable(venv):
        return
    if venv.exists() and any(venv.iterdir()) and not (venv / "pyvenv.cfg").exists():
        way_out = "remove it yourself, or set BROKER_VENV to a new directory"
        raise SetupError(f"{venv} exists and is not a virtual environment; {way_out}")
    _say(program, f"creating {venv} with Python {sys.version.split()[0]}")
    try:
        _run([sys.executable, "-m", "venv", "--without-pip", "--clear", str(venv)])
        wheel = find_pip_wheel()
        if wheel is None:
            _run([str(venv / "bin" / "python"), "-m", "ensurepip"])
        else:
            _unpack_pip(wheel, venv)
    except (OSError, RuntimeError) as error:
        way_out = "on Debian and Ubuntu: apt install python3-venv; is there space on the disk?"
        raise SetupError(f"cannot create {venv}: {error}; {way_out}") from error


def _run(command: Sequence[str]) -> None:
    """Raises RuntimeError: what it said."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(" ".join((result.stderr or result.stdout).split())[:200])


def find_pip_wheel() -> Path | None:
    """The pip that came with this Python; None: it is not where it usually is."""
    import ensurepip

    # Distributions of Linux have it in a directory of their own.
    elsewhere = sysconfig.get_config_var("WHEEL_PKG_DIR")
    for place in (Path(ensurepip.__file__).parent / "_bundled", Path(elsewhere or "/nowhere")):
        found = sorted(place.glob("pip-*.whl"))
        if found:
            return found[-1]
    return None


def _unpack_pip(wheel: Path, venv: Path) -> None:
    """What ensurepip does in five processor seconds, most of them to compile modules that nobody
    imports. Package `pip` comes last: where it is, all of it is."""
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(venv)}))
    part = venv / "pip.part"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(part)
    for entry in sorted(part.iterdir(), reverse=True):
        entry.rename(packages / entry.name)
    part.rmdir()


def _runs(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _install(venv: Path, groups: dict[str, list[str]], program: str) -> None:
    requirements = [line for lines in groups.values() for line in lines]
    count = len(requirements)
    _say(program, f"installing {count} packages and what they need; the first time takes a minute")
    command = [str(venv / "bin" / "python"), "-m", "pip", "install", "--no-input"]
    # Modules are compiled when they are imported, most of them never.
    command += ["--no-compile", "--disable-pip-version-check", "--retries", "2", *requirements]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    lines = []
    with (
        subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as pip,
        open(venv / PIP_LOG, "w", encoding="utf-8") as pip_log,
    ):
        for line in pip.stdout or ():
            pip_log.write(line)
            lines.append(line)
            _show_progress(program, line)
    if pip.returncode != 0:
        raise SetupError(_install_failure(venv, "".join(lines)))
    _say(program, "everything is installed")


def _show_progress(program: str, line: str) -> None:
    words = line.split()
    if line.startswith("Collecting ") and len(words) > 1:
        _say(program, f"  fetching {_NAME_END.split(words[1])[0]}")
    elif line.startswith("Installing collected"):
        _say(program, "  unpacking")


def _install_failure(venv: Path, output: str) -> str:
    where = f"pip's full output is in {venv / PIP_LOG}"
    if "No space left" in output:
        return f"the disk is full: make room for 1 GB in {venv} and start again; {where}"
    if any(word in output for word in _NETWORK_WORDS):
        return (
            "cannot fetch the Python packages: is there a network? Check it (or HTTPS_PROXY, or"
            " set PIP_INDEX_URL to a mirror, or PIP_NO_INDEX=1 and PIP_FIND_LINKS to a folder of"
            f" wheels) and start again; {where}"
        )
    errors = [line for line in output.splitlines() if line.startswith("ERROR")]
    return f"pip failed: {errors[-1] if errors else 'no reason given'}; {where}"


def _say(program: str, text: str) -> None:
    print(f"{program}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
