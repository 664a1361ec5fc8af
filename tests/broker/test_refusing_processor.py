"""Requests whose feature is not there yet."""

from __future__ import annotations

import pytest

from broker.processor.refusing_processor import RefusingProcessor
from remoting.errors import RequestError
from remoting.request_code import RequestCode as Code
from remoting.response_code import ResponseCode
from tests.broker.broker_fakes import FakeConnection, golden, request_of


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (Code.CONSUMER_SEND_MSG_BACK, "sending messages back"),
        (Code.END_TRANSACTION, "transactional messages"),
    ],
)
def test_they_are_refused_in_words(code: Code, words: str) -> None:
    processor = RefusingProcessor()
    assert set(processor.table) == {Code.CONSUMER_SEND_MSG_BACK, Code.END_TRANSACTION}
    for request in (request_of(code), golden(code)[0]):
        with pytest.raises(RequestError) as caught:
            processor.process_request(FakeConnection(), request)
        assert caught.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert words in caught.value.remark
        assert "this version" in caught.value.remark
