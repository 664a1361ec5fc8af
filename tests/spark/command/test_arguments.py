"""The command's arguments: what they become, and the mistakes, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark.command.arguments import Options, UsageError, parse_arguments
from spark.config.sla_config import SlaError, default_sla

PATHS = ["--dumps", "a", "b", "--out", "o"]


def parse(*arguments: str, **environment: str) -> Options:
    return parse_arguments([*PATHS, *arguments], environment)


def test_defaults() -> None:
    options = parse()
    assert options.dumps == ("a", "b")
    assert (options.out, options.date, options.master) == ("o", "yesterday", "local[*]")
    assert (options.between, options.catch_up, options.settings) == (None, None, {})
    assert options.sla.objectives == default_sla().objectives


def test_everything() -> None:
    options = parse(
        "--dumps", "hdfs://c/d", "--date", "2026-03-10", "--between", "1:00", "24:00",
        "--master", "local[2]", "--conf", "spark.a=b=c", "--conf", "spark.d=",
    )  # fmt: skip
    assert options.dumps == ("a", "b", "hdfs://c/d")
    assert (options.date, options.between) == ("2026-03-10", (60, 1440))
    assert (options.master, options.settings) == ("local[2]", {"spark.a": "b=c", "spark.d": ""})
    assert parse("--catch-up", "7").catch_up == 7


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--dump", "a"], r"unknown argument --dump; did you mean --dumps\?"),
        (["--catchup=7"], r"unknown argument --catchup; did you mean --catch-up\?"),
        (["--xyz"], "unknown argument --xyz$"),
        (["--catch-up", "0"], "0 is not a number of days from 1 to 400"),
        (["--catch-up", "many"], "many is not a number of days"),
        (["--catch-up", "7", "--between", "1:00", "2:00"], "--between is for one date, --catch-up"),
        (["--between", "1:00"], "--between: expected 2 arguments"),
        (["--between", "25:00", "26:00"], "--between: 25:00 is not a time of day; write HH:MM"),
        (["--between", "1", "02:00"], "--between: 1 is not a time of day"),
        (["--between", "00:00", "24:01"], "--between: 24:01 is not a time of day"),
        (["--between", "10:60", "11:00"], "--between: 10:60 is not a time of day"),
        (["--between", "02:00", "02:00"], "the first time has to be before the second; a night"),
        (["--between", "23:00", "01:00"], "the first time has to be before"),
        (["--out", ""], "--out: is empty: give a path"),
        (["--dumps", "a", ""], "--dumps: is empty: give a path"),
        (["--conf", "a=b"], r"'a=b' is not a setting: write spark\.some\.key=value"),
        (["--conf", "spark.master=yarn"], "spark.master: use --master"),
        (["--conf", "spark.sql.session.timeZone=CET"], "the report computes in UTC"),
        (["--date"], "--date: expected one argument"),
    ],
)
def test_mistakes(arguments: list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse(*arguments)


@pytest.mark.parametrize("arguments", [[], ["--out", "o"], ["--dumps", "d"], ["--dumps"]])
def test_paths_are_needed(arguments: list[str]) -> None:
    with pytest.raises(UsageError, match=r"required|expected at least one argument"):
        parse_arguments(arguments, {})


def test_spark_submit_has_the_master() -> None:
    assert parse(PYSPARK_GATEWAY_PORT="1").master is None
    for arguments in (["--master", "yarn"], ["--conf", "spark.a=b"]):
        with pytest.raises(UsageError, match="are options of spark-submit: put them before"):
            parse(*arguments, PYSPARK_GATEWAY_PORT="1")


def test_where_the_objectives_come_from(tmp_path: Path) -> None:
    assert parse(ROCKETMQ_HOME=str(tmp_path)).sla == default_sla()
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "sla.yaml").write_text("objectives: [{name: home}]")
    assert parse(ROCKETMQ_HOME=str(tmp_path)).sla.objectives[0].name == "home"
    mine = tmp_path / "mine.yaml"
    mine.write_text("objectives: [{name: mine}]")
    assert parse("--sla", str(mine), ROCKETMQ_HOME=str(tmp_path)).sla.objectives[0].name == "mine"
    with pytest.raises(SlaError, match=r"none\.yaml: cannot be read"):
        parse("--sla", str(tmp_path / "none.yaml"))


def test_exit_on_goes_before_the_file(tmp_path: Path) -> None:
    sla = tmp_path / "sla.yaml"
    sla.write_text("exit_on: window\n")
    assert parse().sla.exit_policy == "day"
    assert parse("--sla", str(sla)).sla.exit_policy == "window"
    assert parse("--sla", str(sla), "--exit-on", "both").sla.exit_policy == "both"
    with pytest.raises(UsageError, match="--exit-on: invalid choice: 'week'"):
        parse("--exit-on", "week")
