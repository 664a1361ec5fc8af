"""`pip install .`: what the wheel holds, and that it works away from the checkout.

The wheel is built from a copy (a build leaves directories in its tree) and installed into an
environment that has only the checkout's libraries besides: no network, a few seconds.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from conf.installation import software_version
from tests.support.deadline import wait_until
from tools.chaos.processes import is_running

ROOT = Path(__file__).resolve().parents[2]
ROOMS = tuple(
    path.parent.name
    for path in sorted(ROOT.glob("*/__init__.py"))
    if path.parent.name not in {"tests", "build"}
)
PROGRAMS = (
    *("mqbroker", "mqbrokercontainer", "mqnamesrv", "mqcontroller"),
    *("mqadmin", "mqshutdown", "mqreport", "mqchaos", "mqcompile", "mqconsole", "mqadopt"),
)
BOOT_LINE = re.compile(r"^The broker\[.*boot success.* namesrv (\d+)\)$", re.MULTILINE)


@dataclass(frozen=True)
class Installation:
    """An environment with the wheel, and a working directory away from the checkout."""

    directory: Path
    environment: Mapping[str, str]

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One program to its end."""
        return subprocess.run(
            [self.directory / "bin" / program, *arguments],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def output(self, program: str, *arguments: str) -> str:
        """What it prints, when it succeeds."""
        result = self.run(program, *arguments)
        assert result.returncode == 0, result.stderr
        return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    source = directory / "source"
    for name in ROOMS:
        shutil.copytree(
            ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
        )
    shutil.copytree(
        ROOT / "packaging" / "wheel",
        source / "packaging" / "wheel",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--disable-pip-version-check", "-w", directory, source]
    # The one for every Python: tests/packaging/test_release.py compiles.
    result = subprocess.run(
        command,
        env={**os.environ, "ROCKETMQ_COMPILED": "off"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    (path,) = directory.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    root = tmp_path_factory.mktemp("installed")
    directory = root / "environment"
    venv.create(directory, with_pip=False, symlinks=True)
    python = directory / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps"]
    command += ["--no-index", "--disable-pip-version-check", "--no-compile", wheel]
    # A checkout on PYTHONPATH (PySpark's tests put it there) would count as installed already.
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=own)
    assert result.returncode == 0, result.stdout + result.stderr
    (packages,) = directory.glob("lib/python*/site-packages")
    libraries = {sysconfig.get_path("purelib"), *filter(_is_library, sys.path)}
    (packages / "libraries.pth").write_text("".join(f"{path}\n" for path in sorted(libraries)))
    environment = {
        "HOME": str(root),
        "PATH": os.pathsep.join([str(directory / "bin"), os.environ["PATH"]]),
        "LANG": "C.UTF-8",
    }
    return Installation(directory, environment)


def _is_library(path: str) -> bool:
    return path.endswith("site-packages") and not (Path(path) / "broker").exists()


@pytest.fixture
def name_server(installed: Installation, tmp_path: Path) -> Iterator[str]:
    """The address of the name server of a broker that runs from the wheel."""
    settings = tmp_path / "broker.conf"
    settings.write_text(
        "brokerName=installed\nbrokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort=0\n"
        "metricsAddress=127.0.0.1\nmetricsPort=0\nembeddedNamesrvPort=0\n"
        "mappedFileSizeCommitLog=1048576\ndiskMaxUsedSpaceRatio=95\n"
    )
    output = tmp_path / "output.txt"
    with (
        output.open("wb") as stream,
        subprocess.Popen(
            [installed.directory / "bin" / "mqbroker", "-c", settings],
            cwd=tmp_path,
            env=installed.environment,
            stdout=stream,
            stderr=subprocess.STDOUT,
        ) as broker,
    ):
        try:
            wait_until(
                lambda: BOOT_LINE.search(output.read_text()) or broker.poll() is not None, 30
            )
            found = BOOT_LINE.search(output.read_text())
            assert found is not None, output.read_text()
            yield f"127.0.0.1:{found[1]}"
        finally:
            broker.terminate()
        assert broker.wait(30) == 0


def test_a_message_from_the_wheel(installed: Installation, name_server: str) -> None:
    to = ("-n", name_server)
    created = installed.output(
        "mqadmin", "updateTopic", "-c", "DefaultCluster", "-t", "Hello", "-r", "1", "-w", "1", *to
    )
    assert "create topic to 127.0.0.1:" in created
    assert "SEND_OK" in installed.output("mqadmin", "sendMessage", "-t", "Hello", "-p", "hi", *to)
    read = installed.output("mqadmin", "consumeMessage", "-t", "Hello", *to)
    assert "BODY: hi" in read
    assert "installed" in installed.output("mqadmin", "clusterList", *to)


def test_mqshutdown_stops_it(installed: Installation, name_server: str) -> None:
    stopped = installed.output("mqshutdown", "broker")
    (pid,) = re.findall(r"Send shutdown request to mqbroker\((\d+)\)", stopped)
    # At the very end of an interpreter another signal would count again.
    wait_until(lambda: not is_running(int(pid)), 30)
    assert installed.run("mqadmin", "clusterList", "-n", name_server).returncode == 1


@pytest.mark.parametrize("program", PROGRAMS)
def test_versions(installed: Installation, program: str) -> None:
    assert installed.output(program, "--version") == f"{program} {software_version()}\n"


def test_the_name_server_finds_its_home(installed: Installation) -> None:
    printed = installed.output("mqnamesrv", "-p")
    (home,) = re.findall(r"^rocketmqHome=(.*)$", printed, re.MULTILINE)
    assert (Path(home) / "conf" / "broker.conf").is_file()
    assert installed.directory in Path(home).parents


def test_a_package_that_another_distribution_replaced(installed: Installation) -> None:
    """pip lets a second distribution write over our files without a word."""
    (path,) = installed.directory.glob("lib/python*/site-packages/store/__init__.py")
    ours = path.read_bytes()
    path.write_text("")
    try:
        result = installed.run("mqadmin", "help")
    finally:
        path.write_bytes(ours)
    assert result.returncode == 1
    assert result.stderr.startswith(f"mqadmin: {path} is not the one that was installed: another")
    assert "an environment of its own" in result.stderr
    assert installed.run("mqadmin", "help").returncode == 0


def test_what_a_shared_environment_would_collide_with(tmp_path: Path) -> None:
    """The documents name an environment of its own first and every package of the wheel; their
    command finds those that another distribution has, too."""
    text = (ROOT / "docs" / "operations.md").read_text().partition("\n## pip install\n")[2]
    text = text.partition("\n## ")[0]
    block = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert block is not None
    tools = [" ".join(line.split()[:2]) for line in block[1].splitlines()]
    assert tools[:2] == ["pipx install", "uv tool"]
    assert "`pipx install .`, or `uv tool install .`" in (ROOT / "README.md").read_text()
    warning = re.search(r"the wheel has the packages (.*?) at the top", text, re.DOTALL)
    assert warning is not None
    assert re.findall(r"`(\w+)`", warning[1]) == list(ROOMS)
    command = re.search(r"`(python -m pip show -f OTHER [^`]*)`", text)
    assert command is not None
    files = ["store/__init__.py", "tools/own.py", "storefront/__init__.py", "other/store/x.py"]
    metadata = tmp_path / "other-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (metadata / "RECORD").write_text("".join(f"{name},,\n" for name in files))
    (metadata / "INSTALLER").write_text("pip\n")
    said = subprocess.run(
        ["/bin/sh", "-c", command[1].replace("OTHER", "other").replace("python", sys.executable)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert said.stdout.split() == ["store/__init__.py", "tools/own.py"], said.stderr


def test_alert_rules_of_the_installed_objectives(installed: Installation) -> None:
    """mqreport finds the sla.yaml of the wheel."""
    rules = installed.output("mqreport", "rules")
    shipped = ROOT / "packaging" / "prometheus" / "rocketmq_slo_rules.yml"
    assert _groups(rules) == _groups(shipped.read_text()) != []


def _groups(rules: str) -> list[str]:
    return re.findall(r"^ *- (?:name|alert|record|expr): .*$", rules, re.MULTILINE)


def test_the_wheel_holds_every_file_of_the_rooms_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    there = {
        str(path.relative_to(ROOT))
        for room in ROOMS
        for path in (ROOT / room).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == there


def test_every_requirement_is_in_the_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
        licenses = {
            name for name in archive.namelist() if name.rpartition("/")[2] in {"LICENSE", "NOTICE"}
        }
    assert len(licenses) == 2
    assert "Apache-2.0" in text
    required = re.findall(r"^Requires-Dist: ([\w.-]+)", text, re.MULTILINE)
    assert {"click", "numpy", "msgspec", "pyspark"} <= {name.lower() for name in required}
