"""packaging/docker: the steps of the Dockerfile, replayed without Docker: what it copies is there
and is enough, its commands run, its ports are the defaults. The composed pair names what exists."""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.broker_startup import load_startup_options
from broker.supervisor import Supervisor
from conf.command_line import require_addresses
from namesrv.namesrv_startup import load_namesrv_options
from tests.support.deadline import wait_until
from tests.tools.test_prepare_venv import calls, fake_venv
from tools.mqadmin import main as mqadmin

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "packaging" / "docker"
INSTALLED = "/opt/rocketmq-python-broker"
SETTINGS = "/etc/rocketmq"
SPARK_STAYS_OUT = {"spark"}
"""The report is a program of its own (docs/nightly.md)."""


def instructions() -> list[tuple[str, str]]:
    """(instruction, its text) in order, continued lines joined."""
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    lines = [ln for ln in text.splitlines() if not ln.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [
        (word, rest.strip())
        for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line)
    ]


def only(name: str) -> str:
    (text,) = (text for word, text in instructions() if word == name)
    return text


def of(name: str) -> list[str]:
    return [text for word, text in instructions() if word == name]


def home() -> str:
    """The last WORKDIR: where the user is at home."""
    return of("WORKDIR")[-1]


def copies() -> list[tuple[list[str], str]]:
    """(sources, target) of every COPY."""
    found = []
    for text in of("COPY"):
        words = [word for word in text.split() if not word.startswith("--")]
        found.append((words[:-1], words[-1]))
    return found


def environment() -> dict[str, str]:
    return dict(word.split("=", 1) for word in shlex.split(only("ENV")))


def rooms() -> set[str]:
    """The top-level packages that setup.cfg lists."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return {name.partition(".")[0] for name in parser["options"]["packages"].split()}


def test_every_room_is_copied() -> None:
    copied = {name.rstrip("/") for sources, _ in copies() for name in sources}
    assert rooms() - SPARK_STAYS_OUT <= copied
    (compiled,) = (text for text in of("RUN") if "compileall" in text)
    assert set(compiled.split()[4:]) == rooms() - SPARK_STAYS_OUT


def test_the_context_holds_what_is_copied_and_nothing_else() -> None:
    lines = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").split("\n*\n")[1]
    kept = {line.removeprefix("!") for line in lines.splitlines() if line.startswith("!")}
    assert kept == {name.partition("/")[0] for sources, _ in copies() for name in sources}


def test_the_ports_are_the_defaults() -> None:
    broker = load_startup_options([], {"ROCKETMQ_HOME": SETTINGS})
    listen = broker.server.listen_port
    namesrv = load_namesrv_options([], {"ROCKETMQ_HOME": SETTINGS}).server.listen_port
    assert broker.supervisor.embedded_namesrv_port == namesrv
    metrics = broker.supervisor.metrics_port
    expected = [listen, listen - 2, broker.ha.ha_listen_port, namesrv, metrics]
    assert [int(word) for word in only("EXPOSE").split()] == expected
    assert f":{metrics}/readyz" in only("HEALTHCHECK")


def test_volumes_belong_to_the_user_of_the_container() -> None:
    """A volume takes the owner of the directory that it covers."""
    user = only("USER")
    made = next(text for text in of("RUN") if "useradd" in text)
    owned = shlex.split(made.partition("install -d -o rocketmq -g rocketmq")[2])
    assert user == "rocketmq"
    assert {*json.loads(only("VOLUME")), f"{SETTINGS}/conf"} == set(owned)
    assert {Path(path).parent for path in json.loads(only("VOLUME"))} == {Path(home())}


class Image:
    """The Dockerfile's file system below a directory, its paths put there. In its virtual
    environment pip only notes its calls, and Python is the one of this test."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / home().lstrip("/")
        self.home.mkdir(parents=True)
        workdir = self.path(INSTALLED)
        for sources, target in copies():
            for pattern in sources:
                self._copy(pattern, workdir / self.translated(target), target)
        (workdir / ".venv").symlink_to(fake_venv(root))

    def _copy(self, pattern: str, target: Path, spelled: str) -> None:
        found = sorted(ROOT.glob(pattern.rstrip("/")))
        assert found, pattern
        assert spelled.endswith("/")
        for path in found:
            if path.is_dir():
                shutil.copytree(path, target, dirs_exist_ok=True)
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def translated(self, text: str) -> str:
        for name in (INSTALLED, SETTINGS):
            text = text.replace(name, str(self.path(name)))
        return text

    def env(self) -> dict[str, str]:
        declared = {key: self.translated(value) for key, value in environment().items()}
        declared["PATH"] = declared["PATH"].replace("$PATH", os.environ["PATH"])
        return {**declared, "HOME": str(self.home)}


def test_a_container_starts_is_healthy_and_stops(tmp_path: Path) -> None:
    """RUN, CMD, HEALTHCHECK and STOPSIGNAL, on free ports; packages are installed by the first of
    them, and by no other."""
    image = Image(tmp_path / "image")
    (build,) = (text for text in of("RUN") if "prepare_venv" in text)
    words = shlex.split(image.translated(build))
    assert words[0] == "python"
    subprocess.run([sys.executable, *words[1:]], cwd=image.path(INSTALLED), check=True)
    assert len(calls(image.root)) == 1
    command = [image.translated(word) for word in json.loads(only("CMD"))]
    settings = Path(command[-1])
    free = "".join(f"{key}=0\n" for key in ("listenPort", "metricsPort", "embeddedNamesrvPort"))
    # A test machine's own disk may be full.
    small = "mappedFileSizeCommitLog=1048576\ndiskMaxUsedSpaceRatio=95\n"
    settings.write_text(f"{settings.read_text()}{free}{small}")
    output = tmp_path / "output.txt"
    with output.open("w") as stream:
        container = subprocess.Popen(
            command,
            env=image.env(),
            cwd=image.home,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: "(ports: " in output.read_text() or container.poll() is not None, 60)
        port = re.search(r"metrics (\d+)", output.read_text())
        assert port is not None, output.read_text()
        check = json.loads(only("HEALTHCHECK").partition("CMD ")[2])
        assert check[0] == "python"
        checking = [sys.executable, *(word.replace("5557", port[1]) for word in check[1:])]
        wait_until(lambda: subprocess.run(checking, capture_output=True).returncode == 0, 60)
    finally:
        container.send_signal(signal.Signals[only("STOPSIGNAL")])
        assert container.wait(60) == 0
    assert {path.name for path in image.home.iterdir() if not path.name.startswith(".")} == {
        "logs",
        "store",
    }
    assert subprocess.run(checking, capture_output=True).returncode != 0
    assert len(calls(image.root)) == 1


def composed() -> dict[str, Any]:
    text = (DOCKER / "compose.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


def test_the_pair_uses_settings_of_the_image() -> None:
    services = composed()["services"]
    in_image = {target for _, target in copies()}
    for name in ("master", "slave"):
        launcher, *arguments = services[name]["command"]
        path = Path(arguments[-1])
        assert launcher == "mqbroker"
        assert f"{path.parent}/" in in_image
        arguments[-1] = str(ROOT / path.relative_to(SETTINGS))
        surroundings = {**services[name]["environment"], "ROCKETMQ_HOME": SETTINGS}
        options = load_startup_options(arguments, surroundings)
        assert options.namesrv_addresses == ("namesrv:9876",)
        assert options.broker.broker_name == "broker-a"
        assert (options.store.broker_role.name == "SLAVE") == (name == "slave")
    launcher, *arguments = services["namesrv"]["command"]
    arguments[-1] = str(ROOT / Path(arguments[-1]).relative_to(SETTINGS))
    namesrv = load_namesrv_options(arguments, {"ROCKETMQ_HOME": SETTINGS})
    assert (launcher, namesrv.server.listen_port) == ("mqnamesrv", 9876)


def test_the_pair_is_built_kept_and_stopped_well() -> None:
    pair = composed()
    (limit,) = {service["stop_grace_period"] for service in pair["services"].values()}
    defaults = Supervisor.__init__.__kwdefaults__
    assert defaults["stop_timeout_ms"] < 1000 * int(limit.removesuffix("s"))
    volumes = [
        volume.split(":") for service in pair["services"].values() for volume in service["volumes"]
    ]
    assert {name for name, _ in volumes} == set(pair["volumes"])
    assert len(volumes) == len(pair["volumes"])
    assert {path for _, path in volumes} == set(json.loads(only("VOLUME")))
    for service in pair["services"].values():
        build = service["build"]
        context = (DOCKER / build["context"]).resolve()
        assert (context, context / build["dockerfile"]) == (ROOT, DOCKER / "Dockerfile")


def test_the_name_server_is_asked_by_a_command_that_exists(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kind, launcher, *arguments = composed()["services"]["namesrv"]["healthcheck"]["test"]
    assert (kind, launcher) == ("CMD", "mqadmin")
    require_addresses(arguments[-1])
    assert mqadmin([*arguments, "--help"]) == 0
    assert "Usage: mqadmin getNamesrvConfig" in capsys.readouterr().out
