"""ServerTls: contexts that come late, change, or do not come."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from remoting import server_tls, tls_keys
from remoting.selector_loop import SelectorLoop
from remoting.server_tls import ServerTls
from remoting.tls_config import TlsConfig
from tests.support.deadline import wait_until
from tests.support.tls_files import Authority, Pair


class World:
    """A ServerTls whose loop turns only when the test says so."""

    def __init__(self, config: TlsConfig) -> None:
        self.loop = SelectorLoop("server-tls-test")
        self.tls = ServerTls(config, watch_interval_s=3600)
        self.tls.start(self.loop)

    def context(self) -> ssl.SSLContext | None:
        """What a connection gets now; the loop is given its turns."""
        found: list[ssl.SSLContext | None] = []
        self.loop.call_soon_threadsafe(lambda: self.tls.with_context(found.append))

        def is_found() -> bool:
            self.loop._turn()
            return bool(found)

        self.loop.wake()
        wait_until(is_found)
        return found[0]

    def look(self) -> None:
        assert self.tls._watch is not None
        self.tls._watch.look()

    def stop(self) -> None:
        self.tls.shutdown()
        self.loop.close()


def put(path: Path, data: bytes) -> None:
    """Replace a file as an orderly operator does: its time may not move, but its inode does."""
    part = path.with_suffix(".new")
    part.write_bytes(data)
    part.replace(path)


@pytest.fixture
def files(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "files")


@pytest.fixture
def pair(files: Authority) -> Pair:
    return files.issue("server")


@pytest.fixture
def config(files: Authority, pair: Pair) -> TlsConfig:
    return TlsConfig(
        tls_test_mode_enable=False,
        tls_server_cert_path=str(pair.certificate),
        tls_server_key_path=str(pair.key),
        tls_server_need_client_auth="require",
        tls_server_auth_client=True,
        tls_server_trust_cert_path=str(files.trust),
    )


@pytest.fixture
def world(config: TlsConfig, caplog: pytest.LogCaptureFixture) -> Iterator[World]:
    caplog.set_level(logging.INFO)
    made = World(config)
    yield made
    made.stop()


def test_the_start_says_what_is_in_force(
    config: TlsConfig, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    World(config).stop()
    assert caplog.messages == [
        f"TLS permissive: certificate {pair.certificate}, key {pair.key}, clients' certificates: "
        "require (file /etc/rocketmq/tls.properties)"
    ]


def test_test_mode_makes_its_certificate_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World(TlsConfig())
    first = world.context()
    assert first is not None
    assert world.context() is first
    assert caplog.messages == [
        "TLS permissive: test mode, with a self-signed certificate created for the first client "
        "that "
        "needs it",
        "TLS: created a self-signed certificate, because tls.test.mode.enable is true",
    ]
    world.stop()


def test_a_certificate_that_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_context: ssl.SSLContext) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(tls_keys, "load_self_signed", fail)
    world = World(TlsConfig(tls_server_mode="enforcing"))
    assert world.context() is None
    assert caplog.messages == ["TLS: cannot create the certificate of test mode: no memory"]
    world.stop()


def test_disabled_says_so(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    World(TlsConfig(tls_server_mode="disabled", tls_test_mode_enable=False)).stop()
    assert caplog.messages == ["TLS disabled: connections that use it are closed"]


# -- changed files -------------------------------------------------------------------------------


def test_nothing_changes_by_itself(world: World) -> None:
    first = world.context()
    world.look()
    assert world.context() is first is not None


def test_a_changed_pair_is_taken_whole(
    world: World, files: Authority, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    first, key = world.context(), pair.key.read_bytes()
    caplog.clear()
    files.issue("server")
    new_key = pair.key.read_bytes()
    put(pair.key, key)
    world.look()
    assert world.context() is first
    assert caplog.messages[0].startswith("TLS: ")
    caplog.clear()
    put(pair.key, new_key)
    world.look()
    assert world.context() is not first
    assert caplog.messages == [
        f"TLS: {pair.key}, {pair.certificate} changed: new connections use the new files"
    ]


def test_half_a_pair_is_waited_for(
    world: World, files: Authority, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    first = world.context()
    other = files.issue("other")
    caplog.clear()
    put(pair.certificate, other.certificate.read_bytes())
    world.look()
    assert world.context() is first
    assert caplog.messages == [
        f"TLS: {pair.certificate} changed; waiting for the other file of the pair"
    ]
    put(pair.key, other.key.read_bytes())
    world.look()
    assert world.context() is not first


def test_a_certificate_for_the_same_key_is_taken_at_once(
    world: World, pair: Pair, tmp_path: Path
) -> None:
    """The original would wait for a key that never comes."""
    first = world.context()
    put(pair.certificate, pair.certificate.read_bytes() + b"\n")
    world.look()
    assert world.context() is not first


def test_a_changed_trust_file_is_taken(world: World, files: Authority, tmp_path: Path) -> None:
    first = world.context()
    other = Authority(tmp_path, "other")
    put(files.trust, files.trust.read_bytes() + other.trust.read_bytes())
    world.look()
    second = world.context()
    assert second is not first
    assert second is not None
    assert len(second.get_ca_certs()) == 2


def test_broken_files_keep_the_old_context_until_they_are_mended(
    world: World, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    first, text = world.context(), pair.certificate.read_text()
    caplog.clear()
    put(pair.certificate, b"half a fi")
    world.look()
    assert world.context() is first
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == (
        f"TLS: {pair.certificate} changed, keeping the previous certificate: tls.server.certPath = "
        f"{pair.certificate} is not a PEM file with a certificate: expected a line "
        "-----BEGIN CERTIFICATE-----"
    )
    put(pair.certificate, text.encode())
    world.look()
    assert world.context() is not first


def test_files_that_come_later_are_taken(
    config: TlsConfig, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    text = pair.key.read_text()
    pair.key.unlink()
    world = World(config)
    assert world.context() is None
    assert caplog.messages == [
        "TLS: rejecting TLS connections until the files are fixed: tls.server.keyPath = "
        f"{pair.key} cannot be "
        "read: No such file or directory; set tls.server.keyPath to a file that this user may read"
    ]
    put(pair.key, text.encode())
    world.look()
    assert world.context() is not None
    world.stop()


# -- refusals ------------------------------------------------------------------------------------


def test_refusals_are_told_now_and_then(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.clear()
    world.loop.now_ms += 60_000
    for number in range(4):
        world.tls.refused(f"10.0.0.{number}:1", "no reason")
    world.loop.now_ms += server_tls._WARN_EVERY_MS
    world.tls.refused("10.0.0.9:1", "no reason")
    assert caplog.messages == [
        "10.0.0.0:1: rejected: no reason",
        "10.0.0.9:1: rejected: no reason (and 3 more since the last such line)",
    ]
