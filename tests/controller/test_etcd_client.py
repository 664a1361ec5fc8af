"""EtcdClient against a peer that answers as a real etcd 3.4.23 did, or as nothing good would."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conf.errors import ConfigError
from controller.etcd_client import EtcdClient, EtcdError
from controller.etcd_config import EtcdConfig
from controller.etcd_connection import MOST_ANSWER_BYTES
from controller.etcd_login import EtcdLogin, make_context, read_login
from controller.etcd_messages import NoContent, RangeAnswer
from tests.controller.etcd_capture import GOLDEN
from tests.controller.fake_gateway import Step, answer, close, gateway, raw, then_close
from tests.support.deadline import wait_until
from tests.support.tls_files import Authority, server_context

ANSWERS: dict[str, dict[str, Any]] = json.loads((GOLDEN / "answers.json").read_text())
LOGIN = EtcdLogin("mq", "secret")
GOOD = answer(200, '{"header":{"revision":"7"},"kvs":[{"key":"YQ==","mod_revision":"5"}]}')
NOBODY = 1
"""A port where nobody listens."""


def as_captured(name: str) -> Step:
    return answer(ANSWERS[name]["status"], ANSWERS[name]["answer"])


def client(*ports: int, login: EtcdLogin | None = None, timeout_ms: int = 3_000) -> EtcdClient:
    text = ",".join(f"127.0.0.1:{port}" for port in ports)
    shown = EtcdLogin() if login is None else login
    return EtcdClient(EtcdConfig(etcd_endpoints=text).endpoints(), None, lambda: shown, timeout_ms)


def ask(one: EtcdClient, *, repeat: bool = True) -> RangeAnswer:
    return one.call("kv/range", {"key": b"a"}, RangeAnswer, repeat=repeat)


def test_keys_and_numbers_are_read() -> None:
    with gateway(GOOD) as etcd:
        found = ask(client(etcd.port))
    assert (found.header.revision, found.kvs[0].key, found.kvs[0].mod_revision) == (7, b"a", 5)
    assert etcd.asked == [("/v3/kv/range", {"key": "YQ=="}, "")]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no login", "user name is empty.*is not let in: set etcdUser and etcdPasswordFile"),
        ("wrong token", "invalid auth token.*is not let in: set etcdUser"),
        ("no rights", "permission denied.*may not use the keys under etcdKeyPrefix"),
        ("too large", "request is too large.*was not taken"),
        ("not base64", "illegal base64.*was not taken"),
        ("no such path", "HTTP 404 and application/json: not the JSON gateway of etcd 3.4"),
        ("no quorum, range", "etcd does not answer.*request timed out"),
        ("no quorum, put", "etcd does not answer.*context deadline exceeded"),
        ("no quorum, keepalive", "etcd does not answer.*no leader"),
    ],
)
def test_a_refusal_says_what_and_the_way_out(name: str, words: str) -> None:
    with gateway(as_captured(name)) as etcd, pytest.raises(EtcdError, match=words) as raised:
        ask(client(etcd.port))
    assert f"http://127.0.0.1:{etcd.port}" in str(raised.value)
    assert len(etcd.asked) == 1


def test_a_wrong_password_is_said_and_not_shown() -> None:
    with (
        gateway(as_captured("wrong password")) as etcd,
        pytest.raises(
            EtcdError, match=r"authentication failed.*etcdUser mq is not let in"
        ) as raised,
    ):
        ask(client(etcd.port, login=LOGIN))
    assert "secret" not in str(raised.value)
    assert "secret" not in repr(LOGIN)
    assert etcd.asked == [("/v3/auth/authenticate", {"name": "mq", "password": "secret"}, "")]


@pytest.mark.parametrize("repeat", [True, False])
def test_a_token_that_ends_is_made_anew_once(repeat: bool) -> None:
    """etcd's tokens end after five minutes without use; what is refused was not carried out."""
    token = json.loads(ANSWERS["login"]["answer"])["token"]
    ended, login = as_captured("wrong token"), as_captured("login")
    with gateway(login, GOOD, ended, login, GOOD, ended, login, ended) as etcd:
        one = client(etcd.port, login=LOGIN)
        assert ask(one, repeat=repeat).header.revision == 7
        assert ask(one, repeat=repeat).header.revision == 7
        with pytest.raises(EtcdError, match="invalid auth token"):
            ask(one, repeat=repeat)
    assert [one.path.rpartition("/")[2] for one in etcd.asked] == [
        *("authenticate", "range", "range", "authenticate", "range"),
        *("range", "authenticate", "range"),
    ]
    assert {one.token for one in etcd.asked if one.path == "/v3/kv/range"} == {token}


def test_an_etcd_without_accounts_is_used_without_login(caplog: pytest.LogCaptureFixture) -> None:
    with gateway(as_captured("no accounts"), GOOD, GOOD) as etcd:
        one = client(etcd.port, login=LOGIN)
        ask(one)
        ask(one)
    assert [one.token for one in etcd.asked] == ["", "", ""]
    assert caplog.text.count("etcdUser has no effect") == 1


def test_endpoints_are_tried_in_turn_and_the_good_one_is_kept() -> None:
    with gateway(as_captured("no quorum, range")) as ill, gateway(GOOD, GOOD) as well:
        one = client(NOBODY, ill.port, well.port)
        ask(one)
        ask(one)
    assert (len(ill.asked), len(well.asked), well.connections) == (1, 2, 1)


def test_nobody_reached_names_all() -> None:
    with pytest.raises(EtcdError) as raised:
        ask(client(NOBODY, 2))
    assert "http://127.0.0.1:1: Connection refused; http://127.0.0.1:2: Connection" in str(
        raised.value
    )


@pytest.mark.parametrize("step", [close, as_captured("no quorum, put"), raw(b"HTTP/1.1 200 X\r\n")])
def test_a_write_whose_end_is_unknown_is_not_sent_again(step: Step) -> None:
    with (
        gateway(step) as first,
        gateway(GOOD) as second,
        pytest.raises(EtcdError, match="etcd does not answer"),
    ):
        ask(client(first.port, second.port), repeat=False)
    assert (len(first.asked), len(second.asked)) == (1, 0)


def test_a_write_that_did_not_leave_goes_to_the_next() -> None:
    with gateway(GOOD) as second:
        ask(client(NOBODY, second.port), repeat=False)
    assert len(second.asked) == 1


def test_a_connection_that_ended_meanwhile_is_not_written_to() -> None:
    """Else the end of that write would be unknown, after each restart of an etcd."""
    with gateway(then_close(GOOD), GOOD) as etcd:
        one = client(etcd.port)
        ask(one)
        (connection,) = one._connections
        wait_until(lambda: not connection.is_usable)
        ask(one, repeat=False)
    assert (len(etcd.asked), etcd.connections) == (2, 2)


HEAD = b"HTTP/1.1 200 X\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (answer(200, "<html>", "text/html"), "not etcd's answer"),
        (answer(200, "{}"), "not etcd's answer.*header"),
        (answer(200, "[" * 100_000), "not etcd's answer"),
        (answer(200, '{"x":' * 100_000), "not etcd's answer"),
        (answer(200, '{"header":{"revision":"-1"}}'), "not etcd's answer"),
        (answer(200, '{"header":{"revision":"9223372036854775808"}}'), "not etcd's answer"),
        (answer(200, '{"header":{},"kvs":[{"key":"*"}]}'), "not etcd's answer"),
        (answer(503, "<html>", "text/html"), "HTTP 503 and text/html: not the JSON gateway"),
        (answer(500, '{"error":{"error":[]}}'), "not the JSON gateway"),
        (raw(b"-ERR unknown command\r\n"), "no answer of HTTP"),
        (raw(HEAD + b"Content-Length: 99\r\n\r\n{}"), "no answer of HTTP, or cut off"),
        (raw(HEAD + b"Content-Length: %d\r\n\r\n" % (1 << 40)), "too large"),
        (raw(HEAD + b"X: y\r\n" * 200), "no answer of HTTP"),
        (raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabc"), "no answer of HTTP"),
        (answer(503, '{"code":14,"message":"a\\n\\u001b[31m"}'), r"a\\n\\x1b\[31m$"),
        (answer(500, "", "a/b\x1b[31m"), r"HTTP 500 and a/b\\x1b\[31m: "),
        (raw(b"-ERR \x1b[31m\r\n"), r"-ERR \\x1b\[31m"),
    ],
)
def test_a_peer_that_is_no_etcd_is_named(step: Step, words: str) -> None:
    with gateway(step) as etcd, pytest.raises(EtcdError, match=words):
        ask(client(etcd.port))


def test_an_answer_without_end_is_not_collected() -> None:
    """Chunks for as long as somebody reads."""

    def give(connection: socket.socket) -> bool:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        for _ in range(2 * (MOST_ANSWER_BYTES >> 20)):
            connection.sendall(chunk)
        return False

    with gateway(give) as etcd, pytest.raises(EtcdError, match="too large: more than"):
        ask(client(etcd.port, timeout_ms=10_000))


@pytest.mark.parametrize("how", ["hang", "head", "body"])
def test_whoever_is_slow_is_left_for_the_next(how: str) -> None:
    """However many bytes come meanwhile: each would begin another wait."""
    with gateway() as slow, gateway(GOOD) as good:
        steps: dict[str, Callable[[socket.socket], bool]] = {
            "hang": slow.hang,
            "head": slow.drip(b"HTTP/1.1 200 X\r\n" + b"X: y\r\n"),
            "body": slow.drip(HEAD + b"Content-Length: 100000\r\n\r\n"),
        }
        slow.add(steps[how])
        begun = time.monotonic()
        ask(client(slow.port, good.port, timeout_ms=400))
        assert 0.3 < time.monotonic() - begun < 3


def test_a_login_that_cannot_be_read_any_more_is_said() -> None:
    def gone() -> EtcdLogin:
        raise ConfigError(["etcdPasswordFile = x cannot be read"])

    with gateway(GOOD) as etcd:
        endpoints = EtcdConfig(etcd_endpoints=f"127.0.0.1:{etcd.port}").endpoints()
        with pytest.raises(EtcdError, match="etcdPasswordFile = x"):
            EtcdClient(endpoints, None, gone, 1_000).call("x", {}, NoContent)
    assert etcd.asked == []


def test_tls(tmp_path: Path) -> None:
    """Authority and host name are checked; a certificate is shown."""
    authority, other = Authority(tmp_path / "a"), Authority(tmp_path / "b", "other")
    named = server_context(authority.issue("server", hosts=("127.0.0.1",)))
    named.verify_mode = ssl.CERT_REQUIRED
    named.load_verify_locations(authority.trust)
    mine = authority.issue("client")
    cases = (
        (named, authority, True, None),
        (named, authority, False, "TLS: .*see etcdCertFile|cut off|reset"),
        (named, other, True, "its certificate is not trusted: .*see etcdTrustedCaFile"),
        (server_context(authority.issue("nameless")), authority, True, "IP address mismatch"),
    )
    for context, trusted, shows, words in cases:
        with gateway(GOOD, context=context) as etcd:
            config = EtcdConfig(
                etcd_endpoints=f"https://127.0.0.1:{etcd.port}",
                etcd_trusted_ca_file=str(trusted.trust),
                etcd_cert_file=str(mine.certificate) if shows else "",
                etcd_key_file=str(mine.key) if shows else "",
            )
            assert config.problems() == []
            one = EtcdClient(config.endpoints(), make_context(config), EtcdLogin, 3_000)
            if words is None:
                assert ask(one).header.revision == 7
            else:
                with pytest.raises(EtcdError, match=words):
                    ask(one)


def test_tls_to_a_peer_without_it(tmp_path: Path) -> None:
    """An etcd with http:// answers the first bytes of TLS as a bad request."""
    trust = Authority(tmp_path).trust
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = EtcdConfig(
            etcd_endpoints=f"127.0.0.1:{listening.getsockname()[1]}",
            etcd_trusted_ca_file=str(trust),
        )
        one = EtcdClient(config.endpoints(), make_context(config), EtcdLogin, 3_000)

        def refuse() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(1 << 16)

        thread = threading.Thread(target=refuse)
        thread.start()
        with pytest.raises(EtcdError, match=r"TLS: .*whether it speaks TLS at all"):
            ask(one)
        thread.join()


@pytest.mark.parametrize(
    ("data", "mode", "words"),
    [
        (b"secret", 0o604, "has mode 0604: other users may read or change it; chmod 600"),
        (b"secret", 0o620, "has mode 0620"),
        (b" \n", 0o600, "expected one line"),
        (b"a\nb", 0o600, "expected one line"),
        (b"\xff", 0o600, "no UTF-8"),
        (b"x" * 9_000, 0o600, "expected one line"),
        (None, 0, "cannot be read: No such file"),
    ],
)
def test_a_secret_has_to_be_one(tmp_path: Path, data: bytes | None, mode: int, words: str) -> None:
    path = tmp_path / "secret"
    if data is not None:
        path.write_bytes(data)
        path.chmod(mode)
    for keys in (
        {"etcd_token_file": str(path)},
        {"etcd_user": "u", "etcd_password_file": str(path)},
    ):
        with pytest.raises(ConfigError, match=words):
            read_login(EtcdConfig(**keys))


def test_a_secret_is_read(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"pass word\n")
    path.chmod(0o640)
    user = EtcdConfig(etcd_user="u", etcd_password_file=str(path))
    assert read_login(user) == EtcdLogin("u", "pass word")
    assert read_login(EtcdConfig(etcd_token_file=str(path))) == EtcdLogin(token="pass word")
    assert read_login(EtcdConfig()).is_empty
