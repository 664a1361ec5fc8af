"""packaging/docker: the steps of the Dockerfile, replayed without Docker: what it copies is there
and is enough for both images, its commands run, its ports are the defaults. The composed pair and
group name what exists, and the nightly CronJob the report's image."""

from __future__ import annotations

import configparser
import datetime
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
from setuptools import find_packages

from broker.broker_startup import load_startup_options
from broker.supervisor.life_stages import ChildTimeouts
from conf.command_line import require_addresses
from controller.controller_startup import load_controller_options
from namesrv.namesrv_startup import load_namesrv_options
from tests.spark.generate_dumps import Shape, generate
from tests.support.deadline import wait_until
from tests.tools.test_prepare_venv import calls, fake_venv
from tools.mqadmin import main as mqadmin
from tools.prepare_venv import read_requirements

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "packaging" / "docker"
INSTALLED = "/opt/rocketmq-python-broker"
SETTINGS = "/etc/rocketmq"
REPORTS = "/reports"
SPARK_STAYS_OUT = {"spark"}
"""The report is a program and an image of its own (docs/nightly.md)."""
Instructions = list[tuple[str, str]]
"""(instruction, its text) in order."""


def stages() -> dict[str, Instructions]:
    """Every stage by its name, with what it is built upon; continued lines are joined."""
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    lines = [ln for ln in text.splitlines() if not ln.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    found: dict[str, Instructions] = {}
    for line in filter(None, joined.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            upon, _, name = rest.partition(" AS ")
            found[name] = list(found.get(upon, []))
        else:
            found[name].append((word, rest.strip()))
    return found


class Stage:
    """The instructions of one image."""

    def __init__(self, name: str) -> None:
        self._instructions = stages()[name]

    def of(self, name: str) -> list[str]:
        return [text for word, text in self._instructions if word == name]

    def only(self, name: str) -> str:
        (text,) = self.of(name)
        return text

    def run_with(self, words: str) -> str:
        (text,) = (text for text in self.of("RUN") if words in text)
        return text

    def home(self) -> str:
        """The last WORKDIR: where the user is at home."""
        return self.of("WORKDIR")[-1]

    def copies(self) -> list[tuple[list[str], str]]:
        """(sources, target) of every COPY."""
        found = []
        for text in self.of("COPY"):
            words = [word for word in text.split() if not word.startswith("--")]
            found.append((words[:-1], words[-1]))
        return found

    def copied(self) -> set[str]:
        return {name.rstrip("/") for sources, _ in self.copies() for name in sources}

    def environment(self) -> dict[str, str]:
        return dict(word.split("=", 1) for text in self.of("ENV") for word in shlex.split(text))

    def owned(self) -> set[str]:
        """Directories that belong to the user."""
        return set(self.run_with("install -d").partition("-o rocketmq -g rocketmq")[2].split())


BROKER, REPORT = Stage("broker"), Stage("report")


def rooms() -> set[str]:
    """The top-level packages that setup.cfg installs."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    include = parser["options.packages.find"]["include"].split()
    return {name.partition(".")[0] for name in find_packages(str(ROOT), include=include)}


def test_the_broker_is_built_when_no_target_is_named() -> None:
    assert list(stages()) == ["base", "report", "broker"]


def test_the_docs_build_them_alike() -> None:
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    builds = re.findall(r"^#   (docker build .*)$", text, re.MULTILINE)
    assert len(builds) == 2
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").splitlines()
    assert [build for build in builds if build not in page] == []


def test_every_room_is_copied() -> None:
    for stage, expected in ((BROKER, rooms() - SPARK_STAYS_OUT), (REPORT, SPARK_STAYS_OUT)):
        assert expected <= stage.copied()
        assert set(stage.run_with("compileall").split()[4:]) == expected


def test_the_context_holds_what_is_copied_and_nothing_else() -> None:
    lines = (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").split("\n*\n")[1]
    kept = {line.removeprefix("!") for line in lines.splitlines() if line.startswith("!")}
    assert kept == {name.partition("/")[0] for name in BROKER.copied() | REPORT.copied()}


def test_the_ports_are_the_defaults() -> None:
    broker = load_startup_options([], {"ROCKETMQ_HOME": SETTINGS})
    listen = broker.server.listen_port
    namesrv = load_namesrv_options([], {"ROCKETMQ_HOME": SETTINGS}).server.listen_port
    assert broker.supervisor.embedded_namesrv_port == namesrv
    metrics = broker.supervisor.metrics_port
    expected = [listen, listen - 2, broker.ha.ha_listen_port, namesrv, metrics]
    assert [int(word) for word in BROKER.only("EXPOSE").split()] == expected
    assert f":{metrics}/readyz" in BROKER.only("HEALTHCHECK")


def test_volumes_belong_to_the_user_of_the_container() -> None:
    """A volume takes the owner of the directory that it covers."""
    assert BROKER.only("USER") == REPORT.only("USER") == "rocketmq"
    volumes = json.loads(BROKER.only("VOLUME"))
    assert {*volumes, f"{SETTINGS}/conf"} == BROKER.owned()
    assert {Path(path).parent for path in volumes} == {Path(BROKER.home())}
    assert REPORT.owned() == {REPORTS}


class Image:
    """The Dockerfile's file system below a directory, its paths put there. In its virtual
    environment pip only notes its calls, and Python is the one of this test."""

    def __init__(self, root: Path, stage: Stage) -> None:
        self.root = root
        self._stage = stage
        self.home = root / stage.home().lstrip("/")
        self.home.mkdir(parents=True)
        workdir = self.path(INSTALLED)
        for sources, target in stage.copies():
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
        declared = {key: self.translated(value) for key, value in self._stage.environment().items()}
        declared["PATH"] = declared["PATH"].replace("$PATH", os.environ["PATH"])
        return {**declared, "HOME": str(self.home)}

    def build(self) -> str:
        """Runs the instructions that need no other user; gives the words of pip's only call."""
        for instruction in self._stage.of("RUN"):
            words = shlex.split(self.translated(instruction))
            if words[0] == "python":
                command = [sys.executable, *words[1:]]
                subprocess.run(command, cwd=self.path(INSTALLED), check=True)
        (call,) = calls(self.root)
        return call


def test_a_container_starts_is_healthy_and_stops(tmp_path: Path) -> None:
    """RUN, CMD, HEALTHCHECK and STOPSIGNAL, on free ports; packages are installed by the first of
    them, and by no other."""
    image = Image(tmp_path / "image", BROKER)
    image.build()
    command = [image.translated(word) for word in json.loads(BROKER.only("CMD"))]
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
        check = json.loads(BROKER.only("HEALTHCHECK").partition("CMD ")[2])
        assert check[0] == "python"
        checking = [sys.executable, *(word.replace("5557", port[1]) for word in check[1:])]
        wait_until(lambda: subprocess.run(checking, capture_output=True).returncode == 0, 60)
    finally:
        container.send_signal(signal.Signals[BROKER.only("STOPSIGNAL")])
        assert container.wait(60) == 0
    assert {path.name for path in image.home.iterdir() if not path.name.startswith(".")} == {
        "logs",
        "store",
    }
    assert subprocess.run(checking, capture_output=True).returncode != 0
    assert len(calls(image.root)) == 1


def nightly() -> dict[str, Any]:
    """The documents of the CronJob's file by their kind."""
    text = (ROOT / "packaging" / "nightly" / "cronjob.yaml").read_text(encoding="utf-8")
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def nightly_pod() -> tuple[dict[str, Any], dict[str, Any]]:
    """The CronJob's pod and its one container."""
    pod = nightly()["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


def test_the_nightly_pod_runs_the_image_of_the_report() -> None:
    pod, container = nightly_pod()
    text = (DOCKER / "Dockerfile").read_text(encoding="utf-8")
    (tag,) = re.findall(r"^# .* --target report -t (\S+) \.$", text, re.MULTILINE)
    assert container["image"] == f"{tag}:latest"
    (uid,) = re.findall(r"useradd --uid (\d+) .* rocketmq$", REPORT.run_with("useradd"))
    security = pod["securityContext"]
    assert (security["runAsUser"], security["fsGroup"]) == (int(uid), int(uid))
    (launcher,) = container["command"]
    assert str(Path(launcher).relative_to(INSTALLED)) in REPORT.copied()


def report_image(root: Path) -> Image:
    """That of the report, built: with what setup.cfg lists for Spark."""
    image = Image(root, REPORT)
    installed = image.build()
    wanted = read_requirements(ROOT / "setup.cfg", ["spark"])
    assert installed.endswith(f" {' '.join([*wanted['base'], *wanted['spark']])}")
    return image


def test_the_report_needs_nothing_more_at_its_start(tmp_path: Path) -> None:
    image = report_image(tmp_path / "image")
    command = json.loads(REPORT.only("CMD"))
    told = subprocess.check_output(command, env=image.env(), cwd=image.home, text=True)
    assert "usage: mqreport" in told
    assert len(calls(image.root)) == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_night_in_the_image_of_the_report(tmp_path: Path) -> None:
    """The CronJob's command over one day of one broker: its files are enough, it installs nothing,
    and writes to no place but its volumes."""
    image, (_, container) = report_image(tmp_path / "image"), nightly_pod()
    volumes = {mount["mountPath"]: tmp_path / mount["name"] for mount in container["volumeMounts"]}
    for volume in volumes.values():
        volume.mkdir()
    for name, content in nightly()["ConfigMap"]["data"].items():
        (volumes["/etc/mqreport"] / name).write_text(content)
    date = datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=1)
    shape = Shape(volumes["/dumps"], date, groups=1, replicas=1, days=1, interval_s=60, seed=1)
    generate(shape, jobs=1)
    before = sorted(image.root.rglob("*"))

    def put(word: str) -> str:
        for path, volume in volumes.items():
            if Path(word).is_relative_to(path):
                return f"{volume}{word.removeprefix(path)}"
        return image.translated(word)

    declared = {item["name"]: put(item["value"]) for item in container["env"]}
    scratch = {"SPARK_LOCAL_DIRS": put("/tmp"), "TMPDIR": put("/tmp")}
    result = subprocess.run(
        [put(word) for word in [*container["command"], *container["args"]]],
        env=image.env() | declared | scratch,
        cwd=image.home,
        capture_output=True,
        text=True,
    )
    assert result.returncode in (0, 1, 2), result.stderr
    assert f"{date} " in result.stdout
    assert (volumes["/reports"] / "report" / f"dt={date}" / "report.html").is_file()
    assert sorted(image.root.rglob("*")) == before


COMPOSED = ("compose.yaml", "compose-controller.yaml")


def composed(name: str) -> dict[str, Any]:
    text = (DOCKER / name).read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


def subnet(project: dict[str, Any]) -> str:
    (network,) = project["networks"]["default"]["ipam"]["config"]
    return str(network["subnet"])


def shipped(service: dict[str, Any], launcher: str) -> list[str]:
    """The arguments of a service's command, with the settings file of the checkout."""
    given, *arguments = service["command"]
    assert given == launcher
    path = Path(arguments[-1])
    assert f"{path.parent}/" in {target for _, target in BROKER.copies()}
    return [*arguments[:-1], str(ROOT / path.relative_to(SETTINGS))]


def test_the_pair_uses_settings_of_the_image() -> None:
    pair = composed("compose.yaml")
    for name in ("master", "slave"):
        service = pair["services"][name]
        surroundings = {**service["environment"], "ROCKETMQ_HOME": SETTINGS}
        options = load_startup_options(shipped(service, "mqbroker"), surroundings)
        assert options.namesrv_addresses == ("namesrv:9876",)
        assert options.broker.broker_name == "broker-a"
        # Two containers are two hosts: without this neither follows the other.
        assert options.ha.ha_trusted_addresses == subnet(pair)
        assert (options.store.broker_role.name == "SLAVE") == (name == "slave")


def test_the_group_is_in_the_safe_mode_under_its_controller() -> None:
    group = composed("compose-controller.yaml")
    controller = load_controller_options(
        shipped(group["services"]["controller"], "mqcontroller"), {"ROCKETMQ_HOME": SETTINGS}
    )
    assert controller.warnings == ()
    stored = Path(controller.controller.controller_store_path)
    kept = [Path(text.split(":")[1]) for text in group["services"]["controller"]["volumes"]]
    assert set(stored.parents) & set(kept), "a new container knows the groups"
    members = [name for name in group["services"] if name.startswith("member")]
    assert len(members) == 3
    for name in members:
        service = group["services"][name]
        options = load_startup_options(shipped(service, "mqbroker"), {"ROCKETMQ_HOME": SETTINGS})
        assert options.namesrv_addresses == ("namesrv:9876",)
        assert options.controller_mode.enable_controller_mode
        assert options.controller_mode.controller_addr == (
            f"controller:{controller.server.listen_port}"
        )
        assert options.controller_mode.all_ack_in_sync_state_set
        assert options.controller_mode.min_in_sync_replicas == 2
        assert options.ha.ha_trusted_addresses == subnet(group)
        assert set(service["depends_on"]) == {"namesrv", "controller"}
        # The image's own check asks for this port.
        assert f":{options.supervisor.metrics_port}/readyz" in BROKER.only("HEALTHCHECK")
        assert "healthcheck" not in service
    text = (DOCKER / "compose-controller.yaml").read_text(encoding="utf-8")
    assert text.count(f" {options.broker.broker_name}\n") == 1, "the command at its top"


def test_the_controller_is_asked_whether_it_is_ready() -> None:
    service = composed("compose-controller.yaml")["services"]["controller"]
    options = load_controller_options(shipped(service, "mqcontroller"), {"ROCKETMQ_HOME": SETTINGS})
    kind, *check = service["healthcheck"]["test"]
    assert (kind, check[:2]) == ("CMD", ["python", "-c"])
    ours = json.loads(BROKER.only("HEALTHCHECK").partition("CMD ")[2])
    port = str(options.controller.metrics_port)
    assert check == [word.replace("5557", port) for word in ours]


@pytest.mark.parametrize("name", COMPOSED)
def test_they_have_a_name_server(name: str) -> None:
    namesrv = composed(name)["services"]["namesrv"]
    arguments = shipped(namesrv, "mqnamesrv")
    options = load_namesrv_options(arguments, {"ROCKETMQ_HOME": SETTINGS})
    assert options.server.listen_port == 9876


@pytest.mark.parametrize("name", COMPOSED)
def test_what_is_composed_is_built_kept_and_stopped_well(name: str) -> None:
    project = composed(name)
    (limit,) = {service["stop_grace_period"] for service in project["services"].values()}
    assert ChildTimeouts(hang_ms=1).stop_ms < 1000 * int(limit.removesuffix("s"))
    volumes = [
        volume.split(":")
        for service in project["services"].values()
        for volume in service["volumes"]
    ]
    assert {name for name, _ in volumes} == set(project["volumes"])
    assert len(volumes) == len(project["volumes"])
    assert {path for _, path in volumes} == set(json.loads(BROKER.only("VOLUME")))
    for service in project["services"].values():
        build = service["build"]
        context = (DOCKER / build["context"]).resolve()
        assert (context, context / build["dockerfile"]) == (ROOT, DOCKER / "Dockerfile")
        for needed, when in service.get("depends_on", {}).items():
            assert when == {"condition": "service_healthy"}
            assert "healthcheck" in project["services"][needed]


def test_they_share_neither_name_nor_network() -> None:
    projects = [composed(name) for name in COMPOSED]
    assert len({project["name"] for project in projects}) == len(projects)
    assert len({subnet(project) for project in projects}) == len(projects)


@pytest.mark.parametrize("name", COMPOSED)
def test_the_name_server_is_asked_by_a_command_that_exists(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    kind, launcher, *arguments = composed(name)["services"]["namesrv"]["healthcheck"]["test"]
    assert (kind, launcher) == ("CMD", "mqadmin")
    require_addresses(arguments[-1])
    assert mqadmin([*arguments, "--help"]) == 0
    assert "Usage: mqadmin getNamesrvConfig" in capsys.readouterr().out
