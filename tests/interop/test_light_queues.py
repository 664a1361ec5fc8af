"""Light queues: a store goes from our broker to a Java one and back; each goes on with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.store_checker import check_store
from tests.broker.pull.test_light_queues import ends, send
from tests.interop import harness
from tests.interop.processes import wait_until

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
_OFFSET = {"consumerGroup": "%LMQ%g", "topic": "%LMQ%a", "queueId": "0"}


def turn(kind: str, directory: Path, store: Path, so_far: int) -> int:
    """Send to two light queues and read one from its start; what it then holds."""
    broker = harness.broker(kind, directory, None, store_dir=store, conf=_SETTINGS).start()
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
    broker.stop()
    return total


@pytest.mark.parametrize("java", ["java-4.9", harness.JAVA_5])
def test_a_store_is_handed_over_and_back(tmp_path: Path, java: str) -> None:
    total = 0
    for number, kind in enumerate(("ours", java, "ours")):
        total = turn(kind, tmp_path / f"turn-{number}", tmp_path / "store", total)
    assert check_store(tmp_path / "store").is_clean
