"""Builds a release of the commit that is checked out, and tries each part of it as a user would.

Run by packaging/release.sh, in the environment that setup.cfg's extra `release` describes; not a
part of the product. Makes the sdist, the wheel for every Python, and one with compiled modules for
each Python that is named; sends a message through a broker of each in an empty environment; writes
an SBOM (CycloneDX) and SHA256SUMS. All or nothing: what is in the directory at the end may be
published. Every failure is a sentence with its remedy. docs/releasing.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from conf.compiled_modules import OFF, REQUIRED, VARIABLE
from conf.installation import DISTRIBUTION, software_version
from tools.compiled_module_list import COMPILED_MODULES
from tools.prepare_venv import read_requirements

CHECKOUT: Final = Path(__file__).resolve().parents[1]
SETTINGS_FILE: Final = CHECKOUT / "setup.cfg"
SUMS: Final = "SHA256SUMS"
OURS: Final = ("BROKER_", "NAMESRV_", "PYTHON", "ROCKETMQ_", "VIRTUAL_ENV")
"""Variables with these beginnings do not reach what is built and tried."""
COMMAND_TIMEOUT_S: Final = 1200
BOOT_TIMEOUT_S: Final = 60
BOOT_LINE: Final = re.compile(
    r"^The broker\[.*\(ports: main (\d+),.* namesrv (\d+)\)$", re.MULTILINE
)
SETTINGS: Final = """brokerName=release
brokerIP1=127.0.0.1
bindAddress=127.0.0.1
listenPort=0
metricsAddress=127.0.0.1
metricsPort=0
embeddedNamesrvPort=0
mappedFileSizeCommitLog=1048576
diskMaxUsedSpaceRatio=95
"""


class ReleaseError(Exception):
    """The problem and its remedy."""


class Release:
    """One run. Not for several threads."""

    def __init__(self, out: Path, work: Path, commit: str) -> None:
        self._out = out
        self._work = work
        self._log = out / "release.log"
        kept = {name: text for name, text in os.environ.items() if not name.startswith(OURS)}
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**kept, "PATH": programs, "SOURCE_DATE_EPOCH": commit_time(commit)}
        self._commit = commit

    def make(self, pythons: Sequence[str]) -> None:
        """Raises ReleaseError, OSError."""
        sdist = self._build_sdist()
        sources = self._unpack(sdist)
        wheel = self._build_wheel(sources, sys.executable, OFF)
        self.run("check", "twine", "check", "--strict", sdist, wheel)
        self._try(sdist, pythons[0], 0, CC="no-such-compiler")
        for python in pythons:
            self._try(wheel, python, 0)
            built = self._build_wheel(sources, python, REQUIRED)
            compiled = self._repair(built)
            self.run("check", "twine", "check", "--strict", compiled)
            self._write_sbom(self._try(compiled, python, len(COMPILED_MODULES)))
        self._log.unlink()
        write_sums(self._out)

    def run(self, what: str, *module: str | Path, **variables: str) -> str:
        """What a module of this Python prints, run as a program. Raises ReleaseError."""
        return self._run(what, [sys.executable, "-m", *module], variables)

    def _run(self, what: str, command: Sequence[str | Path], variables: Mapping[str, str]) -> str:
        try:
            done = subprocess.run(
                command,
                cwd=self._work,
                env={**self._environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ReleaseError(f"{what}: {error}") from error
        with self._log.open("a") as log:
            log.write(f"== {' '.join(map(str, command))}\n{done.stdout}\n")
        if done.returncode != 0:
            raise ReleaseError(f"{what} failed: {last_error(done.stdout)}; {self._log} has all")
        return done.stdout

    def _build_sdist(self) -> Path:
        say("sdist")
        source = self._work / "commit"
        source.mkdir()
        archive = self._work / "commit.tar"
        git("archive", "-o", str(archive), self._commit)
        with tarfile.open(archive) as tar:
            tar.extractall(source, filter="data")
        self.run("sdist", "build", "--sdist", "--outdir", self._out, source)
        (path,) = self._out.glob("*.tar.gz")
        return path

    def _unpack(self, sdist: Path) -> Path:
        """What wheels are built from, so that everything they need is in the sdist. Not the file,
        nor a directory of its name: pip keeps wheels of these."""
        with tarfile.open(sdist) as tar:
            tar.extractall(self._work, filter="data")
        return (self._work / sdist.name.removesuffix(".tar.gz")).rename(self._work / "sources")

    def _build_wheel(self, sources: Path, python: str, wanted: str) -> Path:
        say(f"wheel, compiled modules {wanted}, {python}")
        made = Path(tempfile.mkdtemp(dir=self._work))
        command = ["pip", "--python", python, "wheel", "--no-deps", "-w", str(made), str(sources)]
        self.run(f"the wheel of {python}", *command, **{VARIABLE: wanted})
        (path,) = made.glob("*.whl")
        return path.rename(self._out / path.name) if wanted == OFF else path

    def _repair(self, wheel: Path) -> Path:
        """With the tag of the oldest systems that it runs on. What it would have to bring along, it
        does not have."""
        before = set(self._out.iterdir())
        self.run("auditwheel", "auditwheel", "repair", "-w", self._out, wheel)
        (path,) = set(self._out.iterdir()) - before
        if "manylinux" not in path.name or "musllinux" in path.name:
            raise ReleaseError(f"{path.name}: not for manylinux; build it in a manylinux container")
        return path

    def _try(self, part: Path, python: str, compiled: int, **variables: str) -> Path:
        """The empty environment, in which a broker of `part` ran and passed a message on."""
        say(f"a message through {part.name}, {python}")
        directory = Path(tempfile.mkdtemp(dir=self._work))
        own = directory / "bin" / "python"
        self._run(
            f"an environment of {python}", [python, "-m", "venv", "--without-pip", directory], {}
        )
        self.run(f"installing {part.name}", "pip", "--python", own, "install", part, **variables)
        found = self._pass_message(directory)
        if found != compiled:
            raise ReleaseError(
                f"{part.name} runs {found} compiled modules in {python}, not {compiled}:"
                " try it by hand: the broker's log says why"
            )
        return directory

    def _pass_message(self, directory: Path) -> int:
        """How many modules of the broker in `directory` are compiled ones."""
        home = {"HOME": str(directory), "PATH": f"{directory / 'bin'}:/usr/bin:/bin"}
        with self._broker(directory, home) as (broker, names):
            for words, printed in (
                (["updateTopic", "-c", "DefaultCluster", "-t", "Release"], "create topic to"),
                (["sendMessage", "-t", "Release", "-p", "released"], "SEND_OK"),
                (["consumeMessage", "-t", "Release"], "BODY: released"),
            ):
                said = self._admin(directory, home, *words, "-n", names)
                if printed not in said:
                    raise ReleaseError(
                        f"mqadmin {words[0]} did not say {printed!r}: {said.strip()}"
                    )
            said = self._admin(directory, home, "brokerStatus", "-b", broker, "-n", names)
        found = re.search(r"^compiledModules *: *(\d+)", said, re.MULTILINE)
        return int(found[1]) if found is not None else 0

    def _admin(self, directory: Path, home: Mapping[str, str], *words: str) -> str:
        return self._run(f"mqadmin {words[0]}", [directory / "bin" / "mqadmin", *words], home)

    @contextmanager
    def _broker(self, directory: Path, home: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Addresses of a running broker and of its name server."""
        settings, printed = directory / "broker.conf", directory / "printed.txt"
        settings.write_text(SETTINGS)
        with (
            printed.open("wb") as output,
            subprocess.Popen(
                [directory / "bin" / "mqbroker", "-c", settings],
                cwd=directory,
                env={**self._environment, **home},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            ) as broker,
        ):
            try:
                found = wait_for_boot_line(broker, printed)
                yield f"127.0.0.1:{found[1]}", f"127.0.0.1:{found[2]}"
            finally:
                broker.terminate()
        if broker.returncode != 0:
            raise ReleaseError(
                f"the broker ended with {broker.returncode}: {last_error(printed.read_text())}"
            )

    def _write_sbom(self, directory: Path) -> None:
        """Of what is in an environment: all that a broker runs with, with the licences."""
        version = software_version(CHECKOUT)
        path = self._out / f"{DISTRIBUTION}-{version}.cdx.json"
        say(path.name)
        described = self._work / "pyproject.toml"
        needed = [Requirement(line).name for line in read_requirements(SETTINGS_FILE, [])["base"]]
        # The strings of JSON are strings of TOML, too.
        described.write_text(
            f'[project]\nname = "{DISTRIBUTION}"\nversion = "{version}"\nlicense = "Apache-2.0"\n'
            f"dependencies = {json.dumps(needed)}\n"
        )
        command = ["cyclonedx_py", "environment", "--output-reproducible", "--of", "JSON"]
        python = directory / "bin" / "python"
        self.run("the SBOM", *command, "--pyproject", described, "-o", path, python)
        check_sbom(json.loads(path.read_text()), needed)


def wait_for_boot_line(broker: subprocess.Popen[bytes], printed: Path) -> re.Match[str]:
    """Raises ReleaseError."""
    deadline = time.monotonic() + BOOT_TIMEOUT_S
    while time.monotonic() < deadline:
        if (found := BOOT_LINE.search(printed.read_text())) is not None:
            return found
        try:
            broker.wait(0.1)
            break
        except subprocess.TimeoutExpired:
            continue
    raise ReleaseError(f"the broker did not start: {last_error(printed.read_text())}")


def check_sbom(sbom: Mapping[str, Any], needed: Sequence[str]) -> None:
    """Raises ReleaseError for a library that is not in it, or has no licence."""
    licences = {
        canonicalize_name(each["name"]): each.get("licenses") for each in sbom["components"]
    }
    missing = [name for name in needed if canonicalize_name(name) not in licences]
    if missing:
        raise ReleaseError(f"the SBOM has no {missing[0]}: was its environment changed meanwhile?")
    without = sorted(name for name, found in licences.items() if not found)
    if without:
        raise ReleaseError(
            f"the SBOM has no licence of {', '.join(without)}: ask its authors, or replace it"
        )


def write_sums(out: Path) -> None:
    """For `sha256sum -c`."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(out.iterdir())
    ]
    (out / SUMS).write_text("".join(lines))


def last_error(output: str) -> str:
    """The line of a program's output that most likely says why it failed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    named = [
        line for line in lines if re.match(r"(ERROR|error|.*Error)\b.*:|.*required, but", line)
    ]
    return (named or lines or ["it printed nothing"])[-1]


def git(*arguments: str) -> str:
    """Raises ReleaseError."""
    command = ["git", "-C", str(CHECKOUT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise ReleaseError("there is no git: apt install git") from error
    if done.returncode != 0:
        raise ReleaseError(f"{CHECKOUT}: {done.stderr.strip()}: release from a clone of git")
    return done.stdout


def commit_time(commit: str) -> str:
    """Seconds, for SOURCE_DATE_EPOCH. Raises ReleaseError."""
    return git("log", "-1", "--format=%ct", commit).strip()


def check_checkout() -> str:
    """The commit that is checked out. Raises ReleaseError unless that is all there is."""
    if changed := git("status", "--porcelain").split("\n")[0]:
        raise ReleaseError(f"{changed[3:]} is not committed: commit it or remove it, then release")
    return git("rev-parse", "HEAD").strip()


def check_out(out: Path) -> None:
    """Raises ReleaseError unless `out` is an empty directory, or can become one."""
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise ReleaseError(f"{out} is not empty: remove it, or name another with --out")


def say(text: str) -> None:
    print(f"release: {text}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="release", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=CHECKOUT / "dist", help="default: dist")
    parser.add_argument(
        *("--python", "-p"),
        action="append",
        help="one that gets a wheel with compiled modules; several may be given",
    )
    given = parser.parse_args(arguments)
    out: Path = given.out.resolve()
    try:
        commit = check_checkout()
        check_out(out)
        with tempfile.TemporaryDirectory(prefix="release-") as work:
            Release(out, Path(work), commit).make(given.python or [sys.executable])
    except (ReleaseError, OSError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    say(f"{out} may be published: {', '.join(sorted(path.name for path in out.iterdir()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
