"""packaging/nightly: units, cron line and CronJob parse and call the command as it is."""

from __future__ import annotations

import configparser
import datetime
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import yaml

from spark.arguments import parse_arguments
from spark.prometheus_import import QUERIES
from spark.sla_config import default_sla, parse_sla

ROOT = Path(__file__).resolve().parents[2]
NIGHTLY = ROOT / "packaging" / "nightly"
INSTALLED = "/opt/rocketmq-python-broker"


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


def test_the_service() -> None:
    service = unit("mqreport.service")["Service"]
    check_command(shlex.split(service["ExecStart"]))
    out = shlex.split(service["ExecStart"])[4]
    assert service["ReadWritePaths"] == out
    assert service["Type"] == "oneshot"
    assert unit("mqreport.service")["Unit"]["Documentation"].endswith("/docs/nightly.md")


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
    for query in QUERIES.values():
        assert query in text
    for command in re.findall(r"^bin/mqreport (--dumps .*?)(?:#|$)", text, re.MULTILINE):
        parse_arguments(shlex.split(command), {})
    assert datetime.date.fromisoformat(re.findall(r"--date (\d{4}-\d\d-\d\d)", text)[0])
