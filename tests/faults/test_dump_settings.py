"""A setting that request 25 changes on a running broker, as its metrics dump tells it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker


def last_config(dumps: Path) -> str | None:
    """The digest in the last whole line of the file that is being written."""
    text = "".join(path.read_text() for path in dumps.rglob("*.jsonl"))
    lines = text[: text.rfind("\n") + 1].splitlines()
    return json.loads(lines[-1])["config"] if lines else None


def change(broker: OurBroker, text: str) -> int:
    with broker.client() as client:
        return client.call(25, {}, text.encode()).code


def test_a_changed_setting_changes_the_digest_while_the_broker_runs(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    settings = {"metricsDumpPath": dumps, "metricsDumpIntervalSeconds": 1}
    with OurBroker(tmp_path, **settings).start() as broker:
        wait_until(lambda: last_config(dumps) is not None)
        first = last_config(dumps)
        assert change(broker, "brokerPermission=4\n") == 0
        wait_until(lambda: last_config(dumps) not in (None, first))
        assert change(broker, "brokerPermission=6\n") == 0
        wait_until(lambda: last_config(dumps) == first)
        assert broker.terminate() == 0
