"""A live broker with records that raise wherever it reads them back: it lives, and says which."""

from __future__ import annotations

import json
import shutil
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support import sitecustomize_failpoints
from tests.support.deadline import wait_until
from tests.support.our_broker import HOME, FrameClient, OurBroker
from tests.support.pop_client import PopClient

pytestmark = [pytest.mark.interpreted, pytest.mark.slow]

POISON = "POISON"
FAILPOINTS = (
    "store.record_properties:PropertyExtractor.extract",
    "store.few_records:key_hashes",
    "broker.timer.timer_dequeue_service:delivered_properties",
    "broker.schedule.schedule_message_service:record_again",
    "broker.pop.pop_revive_service:revived_record",
    "broker.transaction.transactional_message_service:half_copy",
)
EXPECTED = {
    "dispatch",
    "timer_delivery",
    "delay_delivery",
    "pop_revival",
    "transaction_check",
}


def broker_with_failpoints(root: Path, **settings: object) -> OurBroker:
    sites = root / "sites"
    sites.mkdir()
    shutil.copy(sitecustomize_failpoints.__file__, sites / "sitecustomize.py")
    broker = OurBroker(root, **settings)
    broker.env = {
        "PYTHONPATH": f"{sites}:{HOME}",
        "PYTHONSAFEPATH": "1",
        "FAILPOINTS": ",".join(FAILPOINTS),
    }
    return broker


def get(broker: OurBroker, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{broker.ports['metrics']}/{path}") as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def counted(broker: OurBroker) -> dict[str, int]:
    """By reader, those that are not 0."""
    name = "rocketmq_store_records_put_aside_total"
    lines = [line for line in get(broker, "metrics")[1].splitlines() if line.startswith(name)]
    counts = {line.partition('reader="')[2].partition('"')[0]: line.split()[-1] for line in lines}
    return {reader: int(float(count)) for reader, count in counts.items() if float(count)}


def send(client: FrameClient, topic: str, key: str, properties: str = "") -> None:
    text = f"KEYS\x01{key}\x02UNIQ_KEY\x01{topic}{key}\x02{properties}"
    names: dict[str, Any] = {"a": "P", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0}
    values = {"g": int(time.time() * 1000), "h": 0, "i": text, "j": 0, "k": "false", "m": "false"}
    assert client.call(310, {**names, **values}, key.encode()).code == 0


def bodies(client: FrameClient, topic: str) -> list[bytes]:
    return [message.body for message in client.pull(topic, 0, 0).messages]


def wait_bodies(client: FrameClient, topic: str, wanted: list[bytes]) -> None:
    wait_until(lambda: bodies(client, topic) == wanted, 15)


def test_it_lives_and_says_which(tmp_path: Path) -> None:
    with broker_with_failpoints(
        tmp_path,
        transactionTimeOut=1,
        transactionCheckInterval=300,
        popCkStayBufferTime=100,
        brokerName="b",
    ).start() as broker:
        pids = broker.children()
        with broker.client() as client:
            deliver_ms = int(time.time() * 1000) + 1_500
            for key in ("a", POISON, "b"):
                send(client, "Plain", key)
                send(client, "Delayed", key, "DELAY\x011\x02")
                send(client, "Timed", key, f"TIMER_DELIVER_MS\x01{deliver_ms}\x02")
                send(client, "Half", key, "TRAN_MSG\x01true\x02PGROUP\x01P\x02")
            wait_bodies(client, "Plain", [b"a", b"POISON", b"b"])
            popper = PopClient(client, "G", "b")
            wait_until(lambda: len(popper.pop("Plain", invisibleTime=1_000).messages) > 0)
            wait_bodies(client, "Delayed", [b"a", b"b"])
            wait_bodies(client, "Timed", [b"a", b"b"])
            wait_until(lambda: counted(broker).keys() >= EXPECTED, 15)
            wait_bodies(client, "%RETRY%G_Plain", [b"a", b"b"])
            counts = counted(broker)
            assert counts["transaction_check"] == counts["timer_delivery"] == 1
            assert counts["delay_delivery"] == counts["pop_revival"] == 1
            assert broker.children() == pids, "no process died"
            status, text = get(broker, "readyz")
            assert status == 200
            assert f"{sum(counts.values())} records cannot be read and are put aside" in text
        lines = [
            json.loads(line)
            for name in ("remoting", "store")
            for line in (broker.store_dir / f"putaside.{name}.jsonl").read_text().splitlines()
        ]
        by = {line["by"]: line for line in lines}
        assert by["delay_delivery"]["topic"] == "SCHEDULE_TOPIC_XXXX"
        assert by["timer_delivery"]["topic"] == "rmq_sys_wheel_timer"
        assert by["transaction_check"]["topic"] == "RMQ_SYS_TRANS_HALF_TOPIC"
        assert by["pop_revival"]["topic"] == "Plain"
        assert all(line["record"] and line["physicalOffset"] >= 0 for line in lines)
        assert broker.terminate() == 0
        # The next start meets the same records, and does nothing about them again.
        broker.start()
        pids = broker.children()
        with broker.client() as client:
            send(client, "Plain", "c")
            send(client, "Delayed", "c", "DELAY\x011\x02")
            wait_bodies(client, "Plain", [b"a", b"POISON", b"b", b"c"])
            wait_bodies(client, "Delayed", [b"a", b"b", b"c"])
        assert broker.children() == pids
        assert counted(broker) == counts
        assert broker.terminate() == 0


def test_the_last_line_says_which_record_it_was(tmp_path: Path) -> None:
    """An error that is not the record's ends the process; after six the broker's last line names
    what was read, and what went wrong."""
    broker = broker_with_failpoints(tmp_path)
    site = tmp_path / "sites" / "sitecustomize.py"
    site.write_text(site.read_text().replace("raise IndexError(", "raise MemoryError("))
    broker.env["FAILPOINTS"] = "broker.schedule.schedule_message_service:record_again"
    with broker.start():
        with broker.client() as client:
            send(client, "Delayed", POISON, "DELAY\x011\x02")
        wait_until(lambda: "remoting: ended with code 1" in broker.log("broker"), 20)
        line = next(
            line for line in broker.log("broker").splitlines() if "remoting: ended with" in line
        )
        assert "its last words: MemoryError: a failpoint (" in line
        assert "in raising)" in line
        assert "it was reading a record: delay_delivery, phy offset 0" in line
