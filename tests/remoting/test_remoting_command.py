"""The command value: ids, flags, answers."""

from __future__ import annotations

import threading

from remoting.language_code import LanguageCode
from remoting.mq_version import V4_9_8
from remoting.remoting_command import RemotingCommand, SerializeType, next_opaque


def test_request() -> None:
    fields = {"a": "b"}
    request = RemotingCommand.request(10, fields, b"body")
    fields["a"] = "changed"
    assert request.ext_fields == {"a": "b"}
    assert (request.code, request.body, request.flag) == (10, b"body", 0)
    assert (request.version, request.language) == (V4_9_8, LanguageCode.PYTHON)
    assert not request.is_response
    assert not request.is_oneway
    assert request.opaque != RemotingCommand.request(10).opaque


def test_oneway() -> None:
    assert RemotingCommand.request(15, oneway=True).flag == 2
    assert RemotingCommand.request(15, oneway=True).is_oneway


def test_response_belongs_to_its_request() -> None:
    request = RemotingCommand(11, opaque=77, flag=2, serialize_type=SerializeType.ROCKETMQ)
    response = request.response(19, "PULL_NOT_FOUND", {"minOffset": "0"}, b"x")
    assert (response.opaque, response.serialize_type) == (77, SerializeType.ROCKETMQ)
    assert (response.code, response.remark, response.body) == (19, "PULL_NOT_FOUND", b"x")
    assert response.flag == 1
    assert response.is_response
    assert response.has_ext_fields
    assert not request.response(0).has_ext_fields
    assert request.response(0, ext_fields={}).has_ext_fields


def test_ext_fields_is_never_none() -> None:
    assert RemotingCommand(1).ext_fields == {}
    assert not RemotingCommand(1).has_ext_fields


def test_opaque_is_unique_over_threads() -> None:
    seen: list[int] = []
    threads = [
        threading.Thread(target=lambda: seen.extend(next_opaque() for _ in range(2000)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(seen)) == 8000
    assert min(seen) >= 0


def test_repr_names_what_matters_but_not_the_body() -> None:
    text = repr(RemotingCommand(10, opaque=5, ext_fields={"a": "b"}, body=b"secret"))
    assert "code=10" in text
    assert "opaque=5" in text
    assert "6 bytes" in text
    assert "secret" not in text
