"""Wrong and odd values in requests about pops and timers, against what Java 5.3.3 answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import odd_requests
from tests.support.our_broker import OurBroker


@pytest.mark.timeout(60)
def test_the_answers_of_java(tmp_path: Path) -> None:
    """Codes and words, where Java has words; where it throws, ours refuses in its own."""
    expected = odd_requests.golden()
    with OurBroker(tmp_path, brokerName=odd_requests.NAME, **odd_requests.SETTINGS) as broker:
        with broker.start().client() as client:
            answers = odd_requests.ask_all(client)
        assert "ERROR" not in broker.log("remoting")
    assert answers.keys() == expected.keys()
    wrong = []
    for name, (code, remark, fields) in answers.items():
        java_code, java_remark, java_fields = expected[name]
        if java_remark == odd_requests.EXCEPTION:
            is_same = code == java_code and bool(remark)
        else:
            is_same = (code, remark, fields) == (java_code, java_remark, java_fields)
        if not is_same and not odd_requests.is_accepted(name):
            wrong.append((name, (code, remark), (java_code, java_remark)))
    assert wrong == []
