"""Light queues: a store goes from our broker to a Java one and back; each goes on with them, and
with those of lite topics, whose units are in no file of ours before the stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from remoting.lite_names import to_lmq_name
from store.store_checker import check_store
from store.stored_units import CQ_UNIT
from tests.broker.lite.lite_client import send_lite
from tests.broker.pull.test_light_queues import ends, send
from tests.interop import harness
from tests.interop.processes import wait_until
from tests.support.our_broker import FrameClient

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(240),
]

_SETTINGS = {
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "2000",
}
_ROUNDS = 150
_LITES = [f"l{number}" for number in range(20)]
_LITE_QUEUES = [to_lmq_name("T", lite) for lite in _LITES]
_OFFSET = {"consumerGroup": "%LMQ%g", "topic": "%LMQ%a", "queueId": "0"}


def send_to_lites(client: FrameClient, kind: str) -> None:
    """Two messages to each lite topic of T. Java before 5.5 knows only their queues."""
    for _ in range(2):
        for lite, queue in zip(_LITES, _LITE_QUEUES, strict=True):
            if kind in ("ours", "java-5.5"):
                assert send_lite(client, lite, b"x", parent="T").code == 0
            else:
                assert send(client, queue)[0] == 0


def look_at_lites(client: FrameClient, total: int) -> None:
    """Each has so many messages, one after the other."""
    wait_until(
        lambda: all(client.offset(30, queue, 0) == total for queue in _LITE_QUEUES),
        "all are dispatched",
    )
    for queue in _LITE_QUEUES if total else ():
        pulled = client.pull(queue, 0, 0)
        assert (pulled.code, pulled.next_offset) == (0, total)
        found = [m.find_property("INNER_MULTI_QUEUE_OFFSET") for m in pulled.messages]
        assert found == [str(number) for number in range(total)]


def turn(kind: str, directory: Path, store: Path, so_far: int) -> int:
    """Send to two light queues and read one from its start; what it then holds."""
    # Ours writes nothing by the clock.
    own = {"flushIntervalConsumeQueue": "600000"} if kind == "ours" else {}
    broker = harness.broker(kind, directory, None, store_dir=store, conf=_SETTINGS | own).start()
    lite_total = so_far // _ROUNDS * 2
    with broker.client() as client:
        assert ends(client, "a", "b") == [so_far, so_far]
        assert client.call(14, _OFFSET).ext_fields == {"offset": str(so_far)}
        for _ in range(_ROUNDS):
            assert send(client, "%LMQ%a,%LMQ%b")[0] == 0
        total = so_far + _ROUNDS
        wait_until(lambda: ends(client, "a", "b") == [total, total], "all are dispatched")
        offsets: list[str | None] = []
        at = 0
        while at < total:
            pulled = client.pull("%LMQ%a", 0, at)
            assert pulled.code == 0
            offsets += [m.find_property("INNER_MULTI_QUEUE_OFFSET") for m in pulled.messages]
            at = pulled.next_offset
        assert offsets == [f"{number},{number}" for number in range(total)]
        assert client.call(15, {**_OFFSET, "commitOffset": total}).code == 0
        look_at_lites(client, lite_total)
        send_to_lites(client, kind)
        look_at_lites(client, lite_total + 2)
    if kind == "ours":
        assert set(units_in_files(store)) == {lite_total}
    broker.stop()
    assert set(units_in_files(store)) == {lite_total + 2}
    return total


def units_in_files(store: Path) -> list[int]:
    """How many each lite topic has."""
    counts = []
    for queue in _LITE_QUEUES:
        paths = sorted((store / "consumequeue" / queue / "0").glob("*"))
        data = b"".join(path.read_bytes() for path in paths)
        counts.append(sum(size > 0 for _place, size, _tags in CQ_UNIT.iter_unpack(data)))
    return counts


@pytest.mark.parametrize("java", ["java-4.9", harness.JAVA_5])
def test_a_store_is_handed_over_and_back(tmp_path: Path, java: str) -> None:
    total = 0
    for number, kind in enumerate(("ours", java, "ours")):
        total = turn(kind, tmp_path / f"turn-{number}", tmp_path / "store", total)
    assert check_store(tmp_path / "store").is_clean
