"""The rules and the example configuration for Prometheus: correct, tested, documented."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.packaging.promql import (
    PACKAGING,
    RULES,
    RULES_HOURS_TEST,
    RULES_TEST,
    SLO_RULES,
    alerts,
    rules,
    wrong_names,
)

DOCS = Path(__file__).parents[2] / "docs" / "monitoring.md"


def run_promtool(promtool: str, *arguments: str) -> str:
    done = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    return text


def test_the_rules_are_correct(promtool: str) -> None:
    text = run_promtool(promtool, "check", "rules", "--lint-fatal", str(RULES), str(SLO_RULES))
    assert sum(map(int, re.findall(r"(\d+) rules found", text))) == len(rules())


def test_the_example_configuration_is_correct(promtool: str) -> None:
    path = PACKAGING / "prometheus" / "prometheus.yml"
    text = run_promtool(promtool, "check", "config", "--lint-fatal", str(path))
    assert "2 rule files found" in text


@pytest.mark.slow
def test_the_rules_do_what_their_tests_say(promtool: str) -> None:
    assert "SUCCESS" in run_promtool(
        promtool, "test", "rules", str(RULES_TEST), str(RULES_HOURS_TEST)
    )


@pytest.mark.slow
def test_the_tests_of_the_rules_can_fail(promtool: str, tmp_path: Path) -> None:
    """They see whether an alert is there: without one they fail."""
    text = RULES.read_text()
    assert "[2m])) > 0.9" in text
    (tmp_path / RULES.name).write_text(text.replace("[2m])) > 0.9", "[2m])) > 9"))
    (tmp_path / SLO_RULES.name).write_text(SLO_RULES.read_text())
    case = tmp_path / RULES_TEST.name
    cases = yaml.safe_load(RULES_TEST.read_text())
    cases["tests"] = [each for each in cases["tests"] if "dies" in each["name"]]
    case.write_text(yaml.safe_dump(cases))
    done = subprocess.run([promtool, "test", "rules", str(case)], capture_output=True, check=False)
    assert done.returncode != 0
    assert b'got: {alertname="RocketMQBudgetBurn"}' in done.stdout + done.stderr


def test_each_alert_fires_in_some_test_and_is_silent_in_another() -> None:
    files = (RULES_TEST, RULES_HOURS_TEST)
    cases = [case for path in files for case in yaml.safe_load(path.read_text())["tests"]]
    looks = [look for case in cases for look in case.get("promql_expr_test", ())]
    firing = [str(look["exp_samples"]) for look in looks if "ALERTS" in look["expr"]]
    for name in alerts():
        fired = [f'alertname="{name}"' in text for text in firing]
        assert True in fired, f"no test in which {name} fires"
        assert False in fired, f"no test in which {name} is silent"


def test_rules_name_what_exists() -> None:
    wrong = []
    for rule in rules():
        texts = " ".join(rule.get("annotations", {}).values())
        wrong += wrong_names(rule["expr"], " ".join(re.findall(r"{{ \$labels\.\w+ }}", texts)))
    assert wrong == []


def test_each_alert_says_how_bad_it_is_and_has_its_page() -> None:
    headings = re.findall(r"^#+ (\w+)$", DOCS.read_text(), re.MULTILINE)
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in ("critical", "warning"), name
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}, name
        assert rule["annotations"]["runbook"] == f"docs/monitoring.md#{name.lower()}"
        assert name in headings, f"docs/monitoring.md has no heading {name}"
    runbook = [name for name in headings if name.startswith("RocketMQ")]
    assert runbook == list(dict.fromkeys(runbook)), "a heading is there twice"
    assert set(runbook) == set(alerts()), "a heading without an alert"
