"""packaging/nightly: units, cron line and CronJob parse and call the command as it is."""

from __future__ import annotations

import configparser
import datetime
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.broker_startup import load_startup_options
from spark.command.arguments import parse_arguments
from spark.config.sla_config import default_sla, parse_sla
from spark.prometheus_import.queries import queries
from tests.tools.test_prepare_venv import calls, fake_venv

ROOT = Path(__file__).resolve().parents[2]
NIGHTLY = ROOT / "packaging" / "nightly"
INSTALLED = "/opt/rocketmq-python-broker"
OF_A_RUN = {"BROKER_VENV", "ROCKETMQ_HOME"}
"""What a run of these tests may have set, and root's shell has not."""


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(NIGHTLY / name, encoding="utf-8")
    return parser


def kubernetes() -> dict[str, Any]:
    text = (NIGHTLY / "cronjob.yaml").read_text(encoding="utf-8")
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def cron_fields() -> list[str]:
    lines = (NIGHTLY / "mqreport.cron").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lines if line and not line.startswith("#") and "=" not in line)
    return line.split(maxsplit=6)


def check_command(words: list[str]) -> None:
    """The command exists in this project, is executable, and takes these arguments."""
    launcher = ROOT / Path(words[0]).relative_to(INSTALLED)
    assert os.access(launcher, os.X_OK)
    arguments = words[1:]
    if "--sla" in arguments:  # a file of the pod
        at = arguments.index("--sla")
        del arguments[at : at + 2]
    options = parse_arguments(arguments, {})
    assert options.catch_up == 7
    assert options.date == "yesterday"
    assert options.dumps != (options.out,)


def steps(name: str) -> list[str]:
    """The commands of an installation, from the first lines of a file."""
    head = (NIGHTLY / name).read_text(encoding="utf-8").partition("[Unit]")[0]
    found = re.findall(r"^#   (\S.*)$", head, re.MULTILINE)
    assert found[0] == f"cd {INSTALLED}"
    return found


def directory(flag: str) -> str:
    """Of the nightly command."""
    words = shlex.split(unit("mqreport.service")["Service"]["ExecStart"])
    return words[words.index(flag) + 1]


def test_the_service() -> None:
    service = unit("mqreport.service")["Service"]
    check_command(shlex.split(service["ExecStart"]))
    assert service["Type"] == "oneshot"
    assert unit("mqreport.service")["Unit"]["Documentation"].endswith("/docs/nightly.md")


def test_systemd_makes_the_directory_of_the_results() -> None:
    """A path of ReadWritePaths= that is not there would be the end: 226/NAMESPACE."""
    service = unit("mqreport.service")["Service"]
    assert Path("/var/lib", service["StateDirectory"]) == Path(directory("--out"))
    assert Path("/var/lib", service["StateDirectory"]).parent == Path(broker_unit("HOME"))
    assert service["ProtectSystem"] == "strict"
    assert "ReadWritePaths" not in service


def broker_unit(name: str) -> str:
    """A variable of the environment of mqbroker.service."""
    text = (ROOT / "packaging" / "systemd" / "mqbroker.service").read_text(encoding="utf-8")
    (value,) = re.findall(rf"^Environment={name}=(.*)$", text, re.MULTILINE)
    return str(value)


def test_it_reads_what_the_installed_broker_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the settings that the installation copies and the HOME of its unit."""
    monkeypatch.setenv("HOME", broker_unit("HOME"))
    settings = ROOT / "conf" / "broker.conf"
    options = load_startup_options(["-c", str(settings)], {"ROCKETMQ_HOME": "/etc/rocketmq"})
    store_root = Path(options.store.store_path_root_dir).expanduser()
    assert options.supervisor.dump_directory(store_root) == Path(directory("--dumps"))


@pytest.mark.parametrize("name", ["mqreport.service", "mqreport.cron"])
def test_the_steps_of_an_installation_work(tmp_path: Path, name: str) -> None:
    """They are done as root, as those of mqbroker.service are; the nights then write nothing below
    /opt, where their user may not."""
    installed, etc = tmp_path / "opt", tmp_path / "etc"
    for part in ("bin", "conf", "spark", "tools", "packaging"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / part, installed / part, ignore=ignored)
    shutil.copy(ROOT / "setup.cfg", installed)
    (installed / ".venv").symlink_to(fake_venv(tmp_path))
    (etc / "systemd" / "system").mkdir(parents=True)
    (etc / "cron.d").mkdir()
    surroundings = {key: value for key, value in os.environ.items() if key not in OF_A_RUN}

    def do(command: str) -> str:
        command = command.replace(INSTALLED, str(installed)).replace("/etc/", f"{etc}/")
        return subprocess.check_output(
            ["sh", "-ec", command], cwd=tmp_path, env=surroundings, text=True, timeout=60
        )

    do("\n".join(step for step in steps(name) if not step.startswith("systemctl ")))
    (call,) = calls(tmp_path)
    assert "pyspark" in call
    files = {path.name for path in etc.rglob("*") if path.is_file()}
    assert (
        files
        == {
            "mqreport.service": {"mqreport.service", "mqreport.timer"},
            "mqreport.cron": {"mqreport"},
        }[name]
    )

    (installed / ".venv.lock").unlink()  # whoever installs makes it again
    before = {path: path.stat().st_mtime_ns for path in installed.rglob("*")}
    launcher = shlex.split(unit("mqreport.service")["Service"]["ExecStart"])[0]
    assert "usage: mqreport" in do(f"{launcher} --help")
    assert {path: path.stat().st_mtime_ns for path in installed.rglob("*")} == before
    assert len(calls(tmp_path)) == 1


def test_the_timer() -> None:
    timer = unit("mqreport.timer")
    assert timer["Timer"]["Persistent"] == "true"
    assert timer["Timer"]["OnCalendar"].endswith(" UTC")
    assert timer["Install"]["WantedBy"] == "timers.target"


def test_systemd_understands_the_units(analyze: str, tmp_path: Path) -> None:
    """Paths and user of an installation are put in, for systemd looks whether they are there."""
    units = []
    for name in ("mqreport.service", "mqreport.timer"):
        text = (NIGHTLY / name).read_text(encoding="utf-8")
        text = text.replace(INSTALLED, str(ROOT)).replace("User=rocketmq", "User=root")
        units.append(tmp_path / name)
        units[-1].write_text(text, encoding="utf-8")
    result = subprocess.run(
        [analyze, "verify", "--man=no", *units], capture_output=True, text=True, timeout=60
    )
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


def test_the_timer_runs_after_the_date_ended(analyze: str) -> None:
    calendar = unit("mqreport.timer")["Timer"]["OnCalendar"]
    text = subprocess.check_output([analyze, "calendar", calendar], text=True, timeout=60)
    assert re.search(r"Next elapse: .* 00:20:00 UTC", text)


def test_cron() -> None:
    minute, hour, *days, user, command = cron_fields()
    assert (int(minute), int(hour), days, user) == (20, 0, ["*", "*", "*"], "rocketmq")
    assert "%" not in command  # cron would end the command there
    check_command(shlex.split(command))


def test_kubernetes() -> None:
    documents = kubernetes()
    spec = documents["CronJob"]["spec"]
    assert documents["CronJob"]["apiVersion"] == "batch/v1"
    assert spec["concurrencyPolicy"] == "Forbid"
    assert (spec["schedule"], spec["timeZone"]) == ("20 0 * * *", "Etc/UTC")
    job = spec["jobTemplate"]["spec"]
    pod = job["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # what a podFailurePolicy asks for
    (container,) = pod["containers"]
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == container["name"]
    assert rule["onExitCodes"]["values"] == [1, 2]
    check_command([*container["command"], *container["args"]])
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    for flag, volume in {"--dumps": "dumps", "--out": "reports", "--sla": "objectives"}.items():
        given = container["args"][container["args"].index(flag) + 1]
        assert Path(given).is_relative_to(mounts[volume])


def test_the_objectives_of_the_pod_are_the_default() -> None:
    objectives = kubernetes()["ConfigMap"]["data"]["sla.yaml"]
    assert parse_sla(objectives, "sla.yaml").objectives == default_sla().objectives


def test_all_run_the_same() -> None:
    service = shlex.split(unit("mqreport.service")["Service"]["ExecStart"])
    assert shlex.split(cron_fields()[-1]) == service


def test_the_docs_name_what_is_there() -> None:
    text = (ROOT / "docs" / "nightly.md").read_text(encoding="utf-8")
    for name in re.findall(r"mqreport\.\w+(?=[ ,|])|cronjob\.yaml", text):
        assert name == "mqreport.zip" or (NIGHTLY / name).exists(), name
    for query in queries().values():
        assert query in text
    for command in re.findall(r"^bin/mqreport (--dumps .*?)(?:#|$)", text, re.MULTILINE):
        parse_arguments(shlex.split(command), {})
    assert datetime.date.fromisoformat(re.findall(r"--date (\d{4}-\d\d-\d\d)", text)[0])
