"""A recall while nothing may be stored is answered as a send is, and stores nothing later."""

from __future__ import annotations

import base64
from pathlib import Path

from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode as Code
from store.control_slots import RUNNING_FLAGS
from tests.broker.append.test_reserved_properties import Recalls
from tests.broker.broker_fakes import FakeConnection


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    recalls = Recalls(tmp_path)
    world = recalls.world
    world.counters[RUNNING_FLAGS] = 1
    at_ms = world.clock.now_ms() + 5000
    handle = base64.urlsafe_b64encode(f"v1 T b {at_ms} U".encode()).decode()
    fields = {"producerGroup": "P", "topic": "T", "recallHandle": handle}
    request = RemotingCommand.request(Code.RECALL_MESSAGE, fields)
    answer = recalls.processor.process_request(FakeConnection(), request)
    assert answer is not None
    assert (answer.code, answer.remark) == (14, "the disk is full")
    world.counters[RUNNING_FLAGS] = 0
    world.turn()
    assert world.records() == []
    assert recalls.recall("U") == 0
