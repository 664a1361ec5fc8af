"""supervisor_config: the settings of metrics and dumps, as a settings file gives them."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.broker_startup import load_startup_options
from broker.settings.startup_options import StartupOptions
from conf.errors import StartupExitError

HOME = {"ROCKETMQ_HOME": "/opt/mq"}


def load(tmp_path: Path, text: str) -> StartupOptions:
    path = tmp_path / "b.conf"
    path.write_text(text)
    return load_startup_options(["-c", str(path)], HOME)


def test_defaults(tmp_path: Path) -> None:
    options = load(tmp_path, f"storePathRootDir={tmp_path}/s\n")
    config = options.supervisor
    assert (config.metrics_port, config.metrics_address) == (5557, None)
    assert (config.metrics_max_series, config.ready_needs_replicas) == (10_000, False)
    assert config.dump_directory(options.store.root) == tmp_path / "s" / "metrics"
    assert config.metrics_dump_interval_seconds == 5
    assert (config.metrics_dump_max_megabytes, config.metrics_dump_keep_days) == (512, 40)


def test_the_names_of_5_x(tmp_path: Path) -> None:
    text = "metricsPromExporterPort=6000\nmetricsPromExporterHost=127.0.0.1\n"
    options = load(tmp_path, text + "metricsExporterType=PROM\nmetricsInDelta=false\n")
    config = options.supervisor
    assert (config.metrics_port, config.metrics_address) == (6000, "127.0.0.1")
    (warning,) = options.warnings
    assert "metricsExporterType" in warning
    assert "metricsPromExporterPort" not in warning
    # The children get the settings as texts and read them again.
    assert StartupOptions.from_settings(options.settings()).supervisor == config


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", None),
        ("none", None),
        ("NONE", None),
        ("/var/dumps", "/var/dumps"),
        ("$storePathRootDir/other", "/data/store/other"),
        ("$storePathRootDir", "/data/store"),
        ("~/dumps", "~/dumps"),
    ],
)
def test_where_dumps_go(tmp_path: Path, value: str, expected: str | None) -> None:
    options = load(tmp_path, f"storePathRootDir=/data/store\nmetricsDumpPath={value}\n")
    found = options.supervisor.dump_directory(options.store.root)
    assert found == (None if expected is None else Path(expected).expanduser())


@pytest.mark.parametrize(
    "line",
    [
        "metricsDumpIntervalSeconds=0",
        "metricsDumpKeepDays=0",
        "metricsDumpMaxMegabytes=x",
        "metricsMaxSeries=0",
        "readyNeedsReplicas=maybe",
        "metricsPromExporterPort=70000",
    ],
)
def test_bad_values_are_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(StartupExitError) as caught:
        load(tmp_path, f"{line}\n")
    assert line.partition("=")[0] in str(caught.value)
