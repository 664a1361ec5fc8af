"""Transports over loopback sockets: partial writes, ends, wake-ups, TLS and its settings."""

from __future__ import annotations

import os
import random
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ha.ha_config import HaConfig
from ha.selector_factory import EVENT_READ, EVENT_WRITE
from ha.transport import HaTlsError, TlsTransport, Transport, make_tls_context, open_transport
from remoting.selector_seam import new_selector
from tests.ha.master_world import Certificates
from tests.support.deadline import wait_until
from tests.support.key_updates import KeyUpdates


@dataclass
class _Pair:
    master: Transport
    slave: Transport


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def _connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
    return server, client


def _shake_hands(pair: _Pair) -> None:
    ends = [pair.master, pair.slave]
    while ends:
        ends = [end for end in ends if end.handshake()]


@pytest.fixture(params=["plain", "tls"])
def pair(request: pytest.FixtureRequest) -> Iterator[_Pair]:
    server, client = _connected()
    contexts: list[ssl.SSLContext | None] = [None, None]
    if request.param == "tls":
        config = request.getfixturevalue("certificates").config()
        contexts = [make_tls_context(config, server_side=side) for side in (True, False)]
        assert None not in contexts
    pair = _Pair(
        open_transport(server, contexts[0], server_side=True),
        open_transport(client, contexts[1], server_side=False),
    )
    _shake_hands(pair)
    yield pair
    pair.master.close()
    pair.slave.close()


def _read(transport: Transport, size: int) -> bytes:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = transport.recv_into(view)
        assert count != 0
        view = view[count or 0 :]
    return bytes(data)


def test_nothing_there_is_none_and_the_end_is_empty(pair: _Pair) -> None:
    assert pair.slave.recv(10) is None
    assert pair.slave.recv_into(memoryview(bytearray(5))) is None
    pair.master.shutdown()
    wait_until(lambda: pair.slave.recv(10) is not None)
    assert pair.slave.recv(10) == b""
    assert pair.slave.recv_into(memoryview(bytearray(5))) == 0


def test_two_parts_arrive_as_one(pair: _Pair) -> None:
    assert pair.master.send((bytearray(b"head"), memoryview(b"body!"))) == 9
    assert _read(pair.slave, 9) == b"headbody!"
    assert pair.slave.send((b"report",)) == 6
    assert _read(pair.master, 6) == b"report"


def test_a_second_record_that_came_along_is_pending(pair: _Pair) -> None:
    """No selector tells of it: the socket was read."""
    for text in (b"one", b"two"):
        assert pair.slave.send((text,)) == 3
    got = b""
    selector = new_selector()
    selector.register(pair.master.fileno(), EVENT_READ)
    while len(got) < 6:
        assert pair.master.has_pending or selector.select(5)
        got += pair.master.recv(100) or b""
    assert got == b"onetwo"
    assert not pair.master.has_pending
    selector.close()


def test_one_call_encrypts_128_kib_at_most(pair: _Pair) -> None:
    """The other thread waits for it. Without TLS the socket decides."""
    taken = pair.master.send((bytes(1 << 20),))
    is_tls = isinstance(pair.master, TlsTransport)
    assert 0 <= taken <= (128 << 10 if is_tls else 1 << 20)
    if is_tls:
        assert pair.master._channel._taken in (0, 128 << 10)


def test_a_report_in_halves(pair: _Pair) -> None:
    """recv(size) leaves the rest for the next reader, be it in the kernel or in the TLS buffer."""
    pair.slave.send((b"12345678abcdefgh",))
    wait_until(lambda: (data := pair.master.recv(4)) and data == b"1234")
    assert pair.master.recv(4) == b"5678"
    selector = new_selector()
    selector.register(pair.master.fileno(), EVENT_READ)
    assert pair.master.has_pending or selector.select(5)
    assert pair.master.recv(100) == b"abcdefgh"
    assert not pair.master.has_pending
    selector.close()


def test_a_full_socket_takes_nothing_and_loses_nothing(pair: _Pair, tmp_path: Path) -> None:
    """Sends and file sends, refused and repeated, with the bytes in order at the other end."""
    content = random.Random(3).randbytes(16 << 20)
    path = tmp_path / "file"
    path.write_bytes(content)
    fd = os.open(path, os.O_RDONLY)
    received = bytearray()
    refused = at = 0
    while at < len(content):
        if at % 3:
            taken = pair.master.send_file(fd, at, min(len(content) - at, 1_000_001))
        else:
            view = memoryview(content)[at : at + 60_000]
            taken = pair.master.send((view[:12], view[12:]), more=True)
        at += taken
        if not taken:
            refused += 1
            for _ in range(40):
                received += pair.slave.recv(1 << 16) or b""
    while len(received) < len(content):
        received += pair.slave.recv(1 << 20) or b""
    assert received == content
    assert refused
    os.close(fd)


def test_a_file_that_is_too_short_is_an_error(pair: _Pair, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"123")
    fd = os.open(path, os.O_RDONLY)
    with pytest.raises(OSError, match="ends at or before byte 3"):
        pair.master.send_file(fd, 3, 10)
    os.close(fd)


@pytest.mark.parametrize("event", [EVENT_READ, EVENT_WRITE])
def test_shutdown_wakes_the_other_thread(pair: _Pair, event: int) -> None:
    while pair.master.send((bytes(100_000),)):
        pass
    woken = threading.Event()
    selector = new_selector()
    selector.register(pair.master.fileno(), event)

    def sleep() -> None:
        if selector.select(30):
            woken.set()

    thread = threading.Thread(target=sleep)
    thread.start()
    pair.master.shutdown()
    pair.master.shutdown()
    thread.join(10)
    assert woken.is_set()
    assert pair.master.is_shut
    with pytest.raises(OSError):  # noqa: PT011 - whichever: broken pipe, or TLS's
        pair.master.send((bytes(100_000),))
    selector.close()


def test_both_directions_at_once(pair: _Pair) -> None:
    """A reader and a writer thread on one transport, as on the master."""
    content = random.Random(4).randbytes(8 << 20)
    reports = bytearray()

    def read_reports() -> None:
        while len(reports) < 80_000:
            reports.extend(pair.master.recv(4096) or b"")

    def send_log() -> None:
        at = 0
        while at < len(content):
            at += pair.master.send((memoryview(content)[at : at + 30_000],))

    threads = [threading.Thread(target=read_reports), threading.Thread(target=send_log)]
    for thread in threads:
        thread.start()
    received, reported = bytearray(), 0
    while len(received) < len(content) or reported < 10_000:
        received += pair.slave.recv(1 << 16) or b""
        if reported < 10_000 and pair.slave.send((reported.to_bytes(8, "big"),)):
            reported += 1
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert received == content
    assert reports == b"".join(number.to_bytes(8, "big") for number in range(10_000))


def test_names(pair: _Pair) -> None:
    assert pair.master.remote == pair.slave.local
    assert pair.master.local == pair.slave.remote
    assert pair.master.local.startswith("127.0.0.1:")


# -- TLS settings --------------------------------------------------------------------------------


def test_tls_is_off_by_default() -> None:
    assert make_tls_context(HaConfig(), server_side=True) is None


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("haTlsCertificate", "ha_tls_certificate"),
        ("haTlsPrivateKey", "ha_tls_private_key"),
        ("haTlsTrustedCertificates", "ha_tls_trusted_certificates"),
    ],
)
def test_missing_and_bad_files_are_named(
    certificates: Certificates, tmp_path: Path, key: str, field: str
) -> None:
    with pytest.raises(HaTlsError, match=f"needs {key}"):
        make_tls_context(certificates.config(**{field: None}), server_side=True)
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(HaTlsError, match=f"{key} {missing} cannot be read: No such file"):
        make_tls_context(certificates.config(**{field: missing}), server_side=False)
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    with pytest.raises(HaTlsError, match=f"{key} {garbage}.*cannot be used"):
        make_tls_context(certificates.config(**{field: str(garbage)}), server_side=True)


def test_a_key_of_another_certificate_is_refused(certificates: Certificates) -> None:
    config = certificates.config(ha_tls_private_key=certificates.stranger_key)
    with pytest.raises(HaTlsError, match="KEY_VALUES_MISMATCH"):
        make_tls_context(config, server_side=True)


def test_an_encrypted_key_asks_nobody(certificates: Certificates, tmp_path: Path) -> None:
    encrypted = str(tmp_path / "encrypted.key")
    certificates._openssl(
        *("pkey", "-in", certificates.key, "-aes128", "-passout", "pass:geheim"),
        *("-out", encrypted),
    )
    with pytest.raises(HaTlsError, match="is encrypted"):
        make_tls_context(certificates.config(ha_tls_private_key=encrypted), server_side=True)


def test_a_slave_refuses_a_master_of_another_authority(certificates: Certificates) -> None:
    server, client = _connected()
    stranger = certificates.config(
        ha_tls_certificate=certificates.stranger,
        ha_tls_private_key=certificates.stranger_key,
        ha_tls_trusted_certificates=certificates.authority,
    )
    master = open_transport(server, make_tls_context(stranger, server_side=True), server_side=True)
    slave = open_transport(
        client, make_tls_context(certificates.config(), server_side=False), server_side=False
    )
    pair = _Pair(master, slave)
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(pair)
    pair.master.close()
    pair.slave.close()


# -- messages of TLS itself ----------------------------------------------------------------------


@pytest.fixture
def updating(
    certificates: Certificates, tmp_path: Path
) -> Iterator[tuple[Transport, socket.socket, KeyUpdates]]:
    """A master's end, and a member's socket, whose records the test writes."""
    server, client = _connected()
    contexts = [make_tls_context(certificates.config(), server_side=side) for side in (True, False)]
    assert contexts[1] is not None
    contexts[1].keylog_filename = str(tmp_path / "keys")
    tls = contexts[1].wrap_socket(client, do_handshake_on_connect=False)
    master = open_transport(server, contexts[0], server_side=True)
    shaking = threading.Thread(target=tls.do_handshake)
    shaking.start()
    while master.handshake():
        pass
    shaking.join(10)
    cipher = tls.cipher()
    assert cipher is not None
    raw = socket.socket(fileno=tls.detach())
    raw.settimeout(10)
    yield master, raw, KeyUpdates(cipher[0], tmp_path / "keys")
    master.close()
    raw.close()


def _receive(transport: Transport, size: int) -> bytes:
    """Waits for what is under way; OSError: the peer was found out."""
    found: list[bytes] = []

    def has_some() -> bool:
        found.extend(filter(None, [transport.recv(size)]))
        return bool(found)

    wait_until(has_some)
    return found[0]


def test_reports_among_key_updates_arrive(
    updating: tuple[Transport, socket.socket, KeyUpdates],
) -> None:
    """Far more in all than are refused in place of data."""
    master, member, records = updating
    for number in range(3_000):
        report = number.to_bytes(8)
        member.sendall(records.updates(1) + records.data(report))
        assert _receive(master, 8) == report


def test_one_call_reads_the_socket_once(
    updating: tuple[Transport, socket.socket, KeyUpdates],
) -> None:
    master, member, records = updating
    member.sendall(records.updates(5_000, wants_answer=False) + records.data(b"late"))
    assert master.recv(8) is None, "data lies behind the flood, for another call"
    with pytest.raises(OSError, match="key updates or empty records in place of data"):
        _receive(master, 8)


def test_answers_to_key_updates_do_not_pile_up(
    updating: tuple[Transport, socket.socket, KeyUpdates],
) -> None:
    """The member sends enough data among them, and reads nothing."""
    master, member, records = updating
    master._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # type: ignore[attr-defined]
    member.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    def go_on() -> None:
        for _ in range(200):
            member.sendall(records.updates(300) + records.data(b"x" * 16_000))
            _receive(master, 16_000)

    with pytest.raises(OSError, match="does not read the answers to its key updates"):
        go_on()
