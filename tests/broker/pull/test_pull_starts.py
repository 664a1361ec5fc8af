"""Resets on the server and moving broadcasting clients: one broker of ours, asked what Java was."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.deadline import wait_until
from tests.support.our_broker import FrameClient, OurBroker

pytestmark = pytest.mark.timeout(120)

_GOLDEN = Path(__file__).parents[2] / "golden" / "pull-starts-5.3.3.json"
_PULL_FIELDS = ("nextBeginOffset", "minOffset", "maxOffset")


def is_replayed(exchange: dict[str, Any]) -> bool:
    """But for 43, which has a data version, and what needs the scan, which comes every five
    seconds (test_broadcast_offset_manager.py)."""
    fields = exchange["fields"]
    needs_scan = fields.get("consumerGroup") == "b@broadcast" or (
        fields.get("consumerGroup"),
        fields.get("proxyFrowardClientId"),
    ) == ("b", "client-3")
    return exchange["call"] in (11, 14, 15, 34, 222) and not needs_scan


def fields_of(code: int, ext: dict[str, str]) -> dict[str, str]:
    return {name: ext[name] for name in _PULL_FIELDS} if code == 11 else ext


def replay(client: FrameClient, own: FrameClient, exchanges: list[dict[str, Any]]) -> None:
    """A broadcasting client has its own connection, as it had when Java was asked."""
    for number, exchange in enumerate(exchanges):
        if not is_replayed(exchange):
            continue
        code, fields = exchange["call"], exchange["fields"]
        is_own = code == 34 or (
            fields.get("consumerGroup") == "b" and "requestSource" not in fields
        )
        answer = (own if is_own else client).call(code, fields, exchange["request"].encode())
        if code == 34:
            continue
        found = (answer.code, answer.remark or None, fields_of(code, answer.ext_fields))
        wanted = (exchange["code"], exchange["remark"] or None, fields_of(code, exchange["ext"]))
        assert found == wanted, (number, exchange)
        if code == 222:
            assert answer.body.hex() == exchange["body"], (number, exchange)


def test_as_java_answers(tmp_path: Path) -> None:
    golden = json.loads(_GOLDEN.read_text())
    broker = OurBroker(
        tmp_path,
        brokerName="broker-r",
    )
    with broker.start():
        with broker.client() as client, broker.client() as own:
            assert client.call(25, {}, b"useServerSideResetOffset=true").code == 0
            for _ in range(5):
                assert _send(client) == 0
            wait_until(lambda: client.offset(30, "T", 0) == 5)
            replay(client, own, golden["exchanges"])
        assert broker.terminate() == 0
    stored = json.loads(
        (broker.store_dir / "config" / "consumerOffset.json").read_text().replace("{0:", '{"0":')
    )["offsetTable"]
    assert stored["T@g"] == {"0": 6}


def _send(client: FrameClient) -> int:
    fields = {
        "a": "p",
        "b": "T",
        "c": "TBW102",
        "d": 1,
        "e": 0,
        "f": 0,
        "g": int(time.time() * 1000),
        "h": 0,
        "i": "",
        "j": 0,
        "k": "false",
        "l": 16,
        "m": "false",
    }
    return client.call(310, fields, b"x").code
