"""Request and reply with real clients: the answer comes back by the connection of who asked."""

from __future__ import annotations

import pytest

from tests.interop.clients import Client
from tests.interop.driver import DriverError
from tests.interop.processes import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(120)]


def ask(client: Client, producer: str, topic: str, text: str, timeout_ms: int = 15_000) -> str:
    answer = client.driver.call(
        "request", producer=producer, topic=topic, body=text, timeout_ms=timeout_ms
    )
    return str(answer)


def test_an_answer_comes_back(client: Client) -> None:
    topic, group = client.topic(), client.group()
    asker, answerer = client.producer(), client.producer()
    where = {"namesrv": client.namesrv, "group": group, "topic": topic}
    client.driver.call("replier.start", name=group, producer=answerer.name, **where)
    try:
        text = "Grüße, 世界 🚀"
        assert ask(client, asker.name, topic, text) == f"re: {text}"
        for number in range(20):
            assert ask(client, asker.name, topic, str(number)) == f"re: {number}"
        with pytest.raises(DriverError, match="RequestTimeoutException"):
            ask(client, asker.name, topic, "silence", 1_500)
    finally:
        client.driver.call("replier.stop", name=group)


def test_an_answer_is_stored_too(client: Client) -> None:
    """storeReplyMessageEnable: the reply topic of the cluster has one message for each answer."""
    topic, group = client.topic(), client.group()
    asker, answerer = client.producer(), client.producer()

    def stored() -> int:
        asked = {"producer": asker.name, "topic": "InteropCluster_REPLY_TOPIC"}
        offsets = client.driver.call("topic.offsets", **asked)
        return sum(high for _low, high in offsets.values())

    before = stored()
    where = {"namesrv": client.namesrv, "group": group, "topic": topic}
    client.driver.call("replier.start", name=group, producer=answerer.name, **where)
    try:
        for number in range(3):
            assert ask(client, asker.name, topic, str(number)) == f"re: {number}"
        wait_until(lambda: stored() == before + 3, "three stored answers")
    finally:
        client.driver.call("replier.stop", name=group)
