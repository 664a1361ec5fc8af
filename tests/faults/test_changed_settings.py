"""Settings changed by request 25 on a running broker: in force, on disk, and after a kill."""

from __future__ import annotations

from pathlib import Path

from remoting.remoting_serializable import loads_lenient
from tests.support.deadline import wait_until
from tests.support.our_broker import OurBroker

TEMPLATE = "TBW102"
RETENTION = "retention: RetentionRules(reserved_ms=86400000"


def change(broker: OurBroker, text: str) -> tuple[int, str | None]:
    with broker.client() as client:
        answer = client.call(25, {}, text.encode())
    return answer.code, answer.remark


def settings_of(broker: OurBroker) -> dict[str, str]:
    with broker.client() as client:
        lines = client.call(26, {}).body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def registered_perm(broker: OurBroker) -> int | None:
    """Of the template topic, as the embedded name server gives it to clients."""
    with broker.client("namesrv") as client:
        answer = client.call(105, {"topic": TEMPLATE})
    return int(loads_lenient(answer.body)["queueDatas"][0]["perm"]) if answer.code == 0 else None


def test_what_applies_now_survives_the_death_of_a_process(tmp_path: Path) -> None:
    with OurBroker(tmp_path).start() as broker:
        conf = tmp_path / "broker.conf"
        before = conf.read_text()
        assert registered_perm(broker) == 7
        text = "brokerPermission=4\nfileReservedTime=24\nflushDiskType=SYNC_FLUSH\n"
        assert change(broker, text) == (
            0,
            "applied now: brokerPermission, fileReservedTime; applies after a restart: "
            f"flushDiskType; saved to {conf}",
        )
        assert registered_perm(broker) == 4, "registered before the answer"
        assert conf.read_text() == before + text
        assert broker.log("store").count(RETENTION) == 1
        assert broker.log("remoting").count("broker.audit - 127.0.0.1:") == 3
        broker.restart_by_kill("store")
        wait_until(lambda: broker.log("store").count(RETENTION) == 2)
        broker.restart_by_kill("remoting")
        found = settings_of(broker)
        assert (found["brokerPermission"], found["fileReservedTime"]) == ("4", "24")
        assert found["flushDiskType"] == "ASYNC_FLUSH", "a lone process is no restart"
        wait_until(lambda: registered_perm(broker) == 4)
        assert change(broker, "storePathRootDir=/tmp")[0] == 16
        assert conf.read_text() == before + text
        assert broker.terminate() == 0
