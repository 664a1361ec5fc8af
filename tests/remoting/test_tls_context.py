"""Contexts from settings: every refusal names key, file and way out."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from remoting.tls_config import TlsConfig, TlsMode
from remoting.tls_context import (
    TlsPairError,
    TlsSettingError,
    check_tls,
    make_client_context,
    make_server_context,
)
from tests.support.tls_files import Authority, Pair

PASSWORD = "123456"


@pytest.fixture
def files(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def server(pair: Pair, **settings: object) -> TlsConfig:
    return TlsConfig(
        **{
            "tls_test_mode_enable": False,
            "tls_server_cert_path": str(pair.certificate),
            "tls_server_key_path": str(pair.key),
            **settings,
        }
    )


def client(**settings: object) -> TlsConfig:
    return TlsConfig(**{"tls_test_mode_enable": False, **settings})  # type: ignore[arg-type]


def refusal(config: TlsConfig, *, of_server: bool = True) -> str:
    with pytest.raises(TlsSettingError) as caught:
        make_server_context(config) if of_server else make_client_context(config)
    return str(caught.value)


def test_test_mode_needs_no_files() -> None:
    assert make_server_context(TlsConfig()).verify_mode is ssl.CERT_NONE
    context = make_client_context(TlsConfig(tls_client_cert_path="/none", tls_client_key_path="/n"))
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)


def test_files_make_a_context(files: Authority) -> None:
    context = make_server_context(server(files.issue("server")))
    assert context.verify_mode is ssl.CERT_NONE
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("given", "missing"), [("cert", "tls.server.keyPath"), ("", "tls.server.certPath")]
)
def test_a_server_without_test_mode_needs_both_files(
    files: Authority, given: str, missing: str
) -> None:
    path = str(files.trust) if given else None
    config = TlsConfig(tls_test_mode_enable=False, tls_server_cert_path=path)
    assert refusal(config) == (
        f"tls.test.mode.enable is false and {missing} is not set: set it to a PEM file, set "
        "tls.test.mode.enable=true to work without files, or set tls.server.mode=disabled"
    )


def test_a_file_that_is_not_there(files: Authority, tmp_path: Path) -> None:
    pair = files.issue("server")
    pair.key.unlink()
    assert refusal(server(pair)) == (
        f"tls.server.keyPath = {pair.key} cannot be read: No such file or directory; set "
        "tls.server.keyPath to a file that this user may read"
    )


def test_a_file_that_is_something_else(files: Authority) -> None:
    pair = files.issue("server")
    swapped = Pair(certificate=pair.key, key=pair.certificate)
    assert refusal(server(swapped)) == (
        f"tls.server.certPath = {pair.key} is not a PEM file with a certificate: expected a line "
        "-----BEGIN CERTIFICATE-----"
    )


def test_a_key_of_another_certificate(files: Authority) -> None:
    pair, other = files.issue("server"), files.issue("other")
    with pytest.raises(TlsPairError) as caught:
        make_server_context(server(Pair(pair.certificate, other.key)))
    assert str(caught.value) == (
        f"tls.server.keyPath = {other.key} is not the key of tls.server.certPath = "
        f"{pair.certificate}: both must come from the same request"
    )


def test_a_damaged_certificate(files: Authority) -> None:
    pair = files.issue("server")
    pair.certificate.write_text(
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", encoding="ascii"
    )
    found = refusal(server(pair))
    assert found.startswith(
        f"tls.server.certPath = {pair.certificate} and tls.server.keyPath = {pair.key} cannot be "
        "used: "
    )


def test_an_encrypted_key(files: Authority) -> None:
    pair = files.issue("server", password=PASSWORD)
    make_server_context(server(pair, tls_server_key_password=PASSWORD))
    assert refusal(server(pair)) == (
        f"tls.server.keyPath = {pair.key}: the key is encrypted: set tls.server.keyPassword, or "
        "store it without"
    )
    found = refusal(server(pair, tls_server_key_password="wrong"))
    assert found.startswith(f"tls.server.keyPath = {pair.key} cannot be decrypted: ")
    assert found.endswith("; is tls.server.keyPassword its password?")


def test_a_key_that_only_says_so_is_not_encrypted(files: Authority) -> None:
    pair = files.issue("server")
    pair.key.write_text(f"not ENCRYPTED\n{pair.key.read_text()}")
    assert refusal(server(pair, tls_server_key_password=PASSWORD)) == (
        f"tls.server.keyPath = {pair.key} cannot be decrypted: Password was given but private key "
        "is not encrypted.; is tls.server.keyPassword its password?"
    )


def test_a_key_encrypted_as_the_original_documents_it() -> None:
    """`openssl pkcs8 -topk8 -v1 PBE-SHA1-RC4-128` of a version that still could."""
    old = Path(__file__).parent / "old_tls_key"
    pair = Pair(old / "server.pem", old / "server.key")
    make_server_context(server(pair, tls_server_key_password=PASSWORD))


def test_an_encrypted_key_of_another_certificate(files: Authority) -> None:
    pair, other = files.issue("server"), files.issue("other", password=PASSWORD)
    config = server(Pair(pair.certificate, other.key), tls_server_key_password=PASSWORD)
    assert "is not the key of" in refusal(config)


# -- whose certificates --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("auth", "auth_client", "mode"),
    [
        ("none", True, ssl.CERT_NONE),
        ("", True, ssl.CERT_NONE),
        ("optional", True, ssl.CERT_OPTIONAL),
        (" Require ", True, ssl.CERT_REQUIRED),
        ("optional", False, ssl.CERT_NONE),
        ("require", False, ssl.CERT_REQUIRED),
    ],
)
def test_whether_clients_are_asked(
    files: Authority, auth: str, auth_client: bool, mode: ssl.VerifyMode
) -> None:
    config = server(
        files.issue("server"),
        tls_server_need_client_auth=auth,
        tls_server_auth_client=auth_client,
        tls_server_trust_cert_path=str(files.trust),
    )
    assert make_server_context(config).verify_mode is mode


def test_without_a_trust_file_the_systems_authorities_count(files: Authority) -> None:
    config = server(
        files.issue("server"), tls_server_need_client_auth="require", tls_server_auth_client=True
    )
    assert make_server_context(config).verify_mode is ssl.CERT_REQUIRED
    assert make_client_context(client(tls_client_auth_server=True)).verify_mode is ssl.CERT_REQUIRED


def test_any_certificate_at_all_is_refused(files: Authority) -> None:
    config = server(files.issue("server"), tls_server_need_client_auth="require")
    assert refusal(config) == (
        "tls.server.need.client.auth = require with tls.server.authClient = false would accept any "
        "certificate: set tls.server.trustCertPath to a PEM file with the authorities of the "
        "clients, or tls.server.need.client.auth=none"
    )


def test_another_word_for_client_auth(files: Authority) -> None:
    config = server(files.issue("server"), tls_server_need_client_auth="required")
    assert refusal(config) == (
        "tls.server.need.client.auth = required: expected one of none, optional, require"
    )


def test_a_trust_file_that_holds_nothing(files: Authority, tmp_path: Path) -> None:
    trust = tmp_path / "trust.pem"
    trust.write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    config = client(tls_client_auth_server=True, tls_client_trust_cert_path=str(trust))
    found = refusal(config, of_server=False)
    assert found.startswith(f"tls.client.trustCertPath = {trust} cannot be used: ")
    assert found.endswith("; it must hold the certificates of the authorities in PEM form")


# -- clients -------------------------------------------------------------------------------------


def test_a_client_may_have_a_certificate(files: Authority) -> None:
    pair = files.issue("client", password=PASSWORD)
    config = client(
        tls_client_cert_path=str(pair.certificate),
        tls_client_key_path=str(pair.key),
        tls_client_key_password=PASSWORD,
        tls_client_auth_server=True,
        tls_client_trust_cert_path=str(files.trust),
    )
    assert make_client_context(config).verify_mode is ssl.CERT_REQUIRED
    assert make_client_context(client()).verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(("given", "missing"), [("cert", "key"), ("key", "cert")])
def test_half_a_pair_is_refused(given: str, missing: str) -> None:
    config = client(**{f"tls_client_{given}_path": "/some.pem"})
    assert refusal(config, of_server=False) == (
        f"tls.client.{given}Path is set but tls.client.{missing}Path is not: a certificate needs "
        "its "
        "key; set both or neither"
    )


# -- the check at a start ------------------------------------------------------------------------


def test_only_what_is_used_is_checked() -> None:
    broken = TlsConfig(tls_server_mode="disabled", tls_test_mode_enable=False)
    check_tls(broken, use_tls=True)
    check_tls(TlsConfig(), use_tls=True)
    half = TlsConfig(
        tls_test_mode_enable=False, tls_client_key_path="/x", tls_server_mode="disabled"
    )
    check_tls(half, use_tls=False)
    with pytest.raises(TlsSettingError, match=r"tls\.client\.certPath is not"):
        check_tls(half, use_tls=True)
    with pytest.raises(TlsSettingError, match=r"tls\.server\.certPath is not set"):
        check_tls(TlsConfig(tls_test_mode_enable=False), use_tls=False)


# -- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["disabled", "permissive", "enforcing"])
def test_modes(word: str) -> None:
    config = TlsConfig(tls_server_mode=word)
    assert (config.mode, config.warnings()) == (TlsMode(word), ())


def test_another_word_is_permissive_with_a_warning() -> None:
    config = TlsConfig(tls_server_mode="Enforcing")
    assert config.mode is TlsMode.permissive
    assert config.warnings() == (
        "tls.server.mode = Enforcing is not one of disabled, permissive, enforcing: "
        "using permissive",
    )


def test_files_without_effect_are_told() -> None:
    assert TlsConfig(tls_server_key_path="/k").warnings() == (
        "tls.test.mode.enable is true: the key and certificate files of the TLS settings have no "
        "effect; set tls.test.mode.enable=false to use them",
    )


def test_more_verification_than_asked_for_is_told() -> None:
    config = TlsConfig(tls_test_mode_enable=False, tls_server_need_client_auth="require")
    assert config.warnings() == (
        "tls.server.need.client.auth = require with tls.server.authClient = false: client "
        "certificates are verified nevertheless, with tls.server.trustCertPath (RocketMQ would "
        "accept any certificate)",
    )
