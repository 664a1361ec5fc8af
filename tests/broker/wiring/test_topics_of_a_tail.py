"""Topics whose first records lie behind the confirm offset when another broker begins to lead."""

from __future__ import annotations

from pathlib import Path

import pytest

from remoting.response_code import ResponseCode
from tests.broker.member_world import Member


def test_a_new_leader_has_the_topics_of_records_that_were_not_dispatched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last leader died before anybody had copied its table: messages that were answered SUCCESS
    could not be read."""
    old, new = Member(tmp_path / "a"), Member(tmp_path / "b")
    old.lead()
    peer = old.connect()
    answer = old.send(peer, b"one", topic="young", queue_id=3)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    new.follow()
    with monkeypatch.context() as patched:
        patched.setattr(new, "dispatch", lambda: None)
        new.copy_from(old)
        assert new.controller._tables.topics.find("young") is None
        new.lead(2)
    found = new.controller._tables.topics.find("young")
    assert found is not None
    assert found.read_queue_nums >= 4
    old.close()
    new.close()
