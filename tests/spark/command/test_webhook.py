"""The notification: what is posted; no address makes a report fail, or shows its secrets."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from spark.command.arguments import UsageError, parse_arguments
from spark.command.command_line import main
from spark.command.notifier import tell_failure
from spark.command.progress import LineReporter
from spark.command.receiver import Receiver
from spark.command.webhook import AddressError, Webhook, message_of, message_of_failure
from tests.spark.demo_report import demo_report, large_report
from tests.spark.hook_server import HookServer, receiving

PATHS = ["--dumps", "a", "--out", "o"]
MESSAGE = {"date": "2026-03-14", "text": "grün"}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


def test_what_is_posted() -> None:
    with receiving(HookServer(status=204)) as receiver:
        assert Webhook(receiver.address("/a/b?token=1&x=ß")).find_failure(MESSAGE) is None
    ((method, path, headers, body),) = receiver.requests
    assert (method, path) == ("POST", "/a/b?token=1&x=%C3%9F")
    assert headers["Content-Type"] == "application/json"
    assert "Authorization" not in headers
    assert json.loads(body) == MESSAGE


def test_user_and_password_become_a_header() -> None:
    with receiving(HookServer()) as receiver:
        address = receiver.address(user="me:p%40ss@")
        assert Webhook(address).find_failure(MESSAGE) is None
    # base64 of me:p@ss
    assert receiver.requests[0][2]["Authorization"] == "Basic bWU6cEBzcw=="
    assert receiver.requests[0][2]["Host"] == f"127.0.0.1:{receiver.port}"


@pytest.mark.parametrize("status", [400, 404, 500, 503])
def test_an_answer_that_is_no_success(status: int) -> None:
    with receiving(HookServer(status)) as receiver:
        failure = Webhook(receiver.address("/secret", "me:word@")).find_failure(MESSAGE)
    assert failure == f"http://127.0.0.1:{receiver.port}/…: answered {status}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/", "/elsewhere"])
def test_redirects_are_not_followed(status: int, target: str) -> None:
    with receiving(HookServer(status, {"Location": target})) as receiver:
        failure = Webhook(receiver.address()).find_failure(MESSAGE)
    assert failure is not None
    assert failure.endswith(f"answered {status}, a redirect: give the address that it leads to")
    assert len(receiver.requests) == 1


def test_nobody_listens() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        failure = Webhook(f"http://me:word@127.0.0.1:{port}/secret").find_failure(MESSAGE)
    assert failure == f"http://127.0.0.1:{port}/…: Connection refused"


@pytest.mark.parametrize("sends", [b"", b"HTTP/1.1 200 OK\r\n"], ids=["silent", "half an answer"])
def test_a_server_that_hangs(sends: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as open_ones:

        def accept() -> None:
            connection, _ = server.accept()
            open_ones.enter_context(connection)
            connection.sendall(sends)

        thread = threading.Thread(target=accept)
        thread.start()
        webhook = Webhook(f"http://127.0.0.1:{server.getsockname()[1]}/")
        failure = webhook.find_failure(MESSAGE, timeout_s=0.5)
        thread.join()
    assert failure is not None
    assert failure.endswith("no answer within 0.5 s")


def test_a_server_that_trickles_does_not_hold_the_report_up() -> None:
    """Each byte comes in time; the whole answer never does."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def trickle() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while not done.wait(0.05):
                    connection.sendall(b"x")

        thread = threading.Thread(target=trickle)
        thread.start()
        failure = Webhook(f"http://127.0.0.1:{server.getsockname()[1]}/").find_failure(
            MESSAGE, timeout_s=0.5
        )
        done.set()
        thread.join()
    assert failure is not None
    assert "no answer within 0.5 s" in failure


@pytest.mark.parametrize(
    "answer", [b"nonsense\r\n\r\n", b"", b"HTTP/1.1 abc\r\n\r\n"], ids=["other", "none", "bad"]
)
def test_something_that_speaks_no_http(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_and_close() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        thread = threading.Thread(target=answer_and_close)
        thread.start()
        assert Webhook(f"http://127.0.0.1:{server.getsockname()[1]}/x").find_failure(MESSAGE)
        thread.join()


@pytest.mark.parametrize(
    "address",
    [*("file:///etc/passwd", "ftp://h/x", "h/x", "", "http://", "http://h:99999/", "https://h/ x")],
)
def test_only_web_addresses(address: str) -> None:
    with pytest.raises(AddressError, match="is not an http or https address") as caught:
        Webhook(address)
    assert not address or address not in str(caught.value)


def test_no_text_has_the_secrets() -> None:
    webhook = Webhook("https://me:word@hooks.example.com:8443/services/T0/B1?key=k")
    assert webhook.shown == "https://hooks.example.com:8443/…"
    assert "word" not in repr(webhook)
    assert "T0" not in repr(webhook)


def test_a_name_that_cannot_be_one_is_a_note_only(capsys: pytest.CaptureFixture[str]) -> None:
    name = "a" * 70
    receiver = Receiver(Webhook(f"http://{name}ß/x"))
    tell_failure(receiver, "2026-03-14", "x", LineReporter("mqreport", sys.stderr), 0)
    told = capsys.readouterr().err
    assert told.startswith(f"mqreport: 2026-03-14: notification failed: http://{name}ß/…: ")


def test_where_the_address_may_come_from(tmp_path: Path) -> None:
    def address(*arguments: str, **environment: str) -> str | None:
        found = parse_arguments([*PATHS, *arguments], environment).notify
        return None if found is None else found.webhook.address

    held = tmp_path / "url"
    held.write_text("https://h/from-file\n")
    assert address() is None
    assert address(MQREPORT_NOTIFY_URL="") is None
    assert address("--notify", "https://h/x") == "https://h/x"
    assert address("--notify", f"@{held}") == "https://h/from-file"
    assert address(MQREPORT_NOTIFY_URL="https://h/y") == "https://h/y"
    assert address("--notify", "https://h/x", MQREPORT_NOTIFY_URL="https://h/y") == "https://h/x"
    held.write_text("secret word")
    for arguments, environment, told in (
        (["--notify", "secret"], {}, "--notify: is not an http or https address"),
        (["--notify", f"@{held}"], {}, f"--notify @{held}: is not an http or https address"),
        (["--notify", "@/none"], {}, "--notify @/none: cannot be read: No such file"),
        ([], {"MQREPORT_NOTIFY_URL": "secret"}, "MQREPORT_NOTIFY_URL: is not an http or"),
    ):
        with pytest.raises(UsageError) as caught:
            address(*arguments, **environment)
        assert str(caught.value).startswith(told)
        assert "secret" not in str(caught.value)


def test_the_message_of_a_report() -> None:
    found = message_of(demo_report(), "/o/report.html")
    text = found.pop("text")
    assert text.startswith("2026-03-14 breached: DefaultCluster/broker-a/broker-a:1: availability")
    assert text.endswith("; page: /o/report.html")
    rolling: dict[str, Any] = found.pop("rolling")
    assert (rolling["days"], rolling["verdict"], len(rolling["reasons"])) == (
        *(30, "insufficient data"),
        3,
    )
    assert rolling["reasons"][0] == (
        "DefaultCluster/broker-a/broker-a:1: availability not proved: 6 min 02 s bad and 16 d"
        " unknown of 43 min 12 s allowed; 14 of 30 days have data"
    )
    assert found == {
        "version": 1,
        "date": "2026-03-14",
        "verdict": "breached",
        "reasons": [
            "DefaultCluster/broker-a/broker-a:1: availability 99.681 % < 99.9 %: 4 min 35 s bad"
            " of 1 min 26.4 s allowed",
            "and 1 with insufficient data",
        ],
        "revision": 1,
        "exit_on": "day",
        "calendar": [],
        "budget_steps": [],
        "exit_code": 1,
        "page": "/o/report.html",
    }
    assert message_of(large_report(12), "x")["reasons"][3:] == [
        "and 5 more",
        "and 8 with insufficient data",
    ]
    json.dumps(found, allow_nan=False)


def test_a_report_that_cannot_be_made_is_told_too(tmp_path: Path) -> None:
    with receiving(HookServer()) as receiver:
        asked = ["--dumps", str(tmp_path), "--out", str(tmp_path), "--date", "2026-04-01"]
        now_ms = 1_772_000_000_000  # 2026-02-25
        assert main([*asked, "--notify", receiver.address()], lambda: now_ms) == 3
    message = json.loads(receiver.requests[0][3])
    assert (message["date"], message["verdict"], message["exit_code"]) == ("2026-04-01", None, 3)
    key = message.pop("key")
    assert message == message_of_failure("2026-04-01", message["error"])
    assert receiver.requests[0][2]["Idempotency-Key"] == f'"{key}"'


def test_a_report_that_cannot_be_told_of_is_the_same_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--dumps", str(tmp_path), "--out", str(tmp_path), "--date", "2026-04-01"]
    with receiving(HookServer(500)) as receiver:
        code = main([*asked, "--notify", receiver.address("/secret")], lambda: 1_772_000_000_000)
    assert code == main(asked, lambda: 1_772_000_000_000) == 3
    told = capsys.readouterr().err
    assert f"notification failed: http://127.0.0.1:{receiver.port}/…: answered 500" in told
    assert "secret" not in told
