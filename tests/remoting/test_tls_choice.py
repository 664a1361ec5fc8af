"""tls.protocols and tls.ciphers: who offers only what they leave out gets no connection."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest

from remoting.tls_choice import openssl_name
from remoting.tls_config import TlsConfig
from remoting.tls_context import TlsSettingError, check_tls, make_client_context
from tests.remoting.test_tls_connection import World
from tests.support.tls_files import Authority, client_context, server_context

ECDSA_128 = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
RSA_128 = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
SUITES_13 = "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"
JAVA_NAMES = {
    RSA_128: "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_CCM_8": "DHE-RSA-AES256-CCM8",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CCM": "ECDHE-ECDSA-AES256-CCM",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_DHE_RSA_WITH_CAMELLIA_256_CBC_SHA256": "DHE-RSA-CAMELLIA256-SHA256",
    "TLS_DHE_DSS_WITH_ARIA_128_GCM_SHA256": "DHE-DSS-ARIA128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CCM_8": "AES128-CCM8",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "SSL_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "ECDHE-RSA-AES128-GCM-SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "nonsense": "nonsense",
}
"""As `openssl ciphers -stdname` prints them (OpenSSL 3.0)."""


@pytest.mark.parametrize("java", JAVA_NAMES)
def test_names_of_java(java: str) -> None:
    assert openssl_name(java) == JAVA_NAMES[java]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("tls"))
    made.issue("server")
    return made


def served(authority: Authority, **settings: object) -> TlsConfig:
    directory = authority.trust.parent
    return dataclasses.replace(
        TlsConfig(
            tls_test_mode_enable=False,
            tls_server_cert_path=str(directory / "server.pem"),
            tls_server_key_path=str(directory / "server.key"),
        ),
        **settings,
    )


def offer(ciphers: str = "", *, only: str = "") -> ssl.SSLContext:
    """A client's of these suites of TLS 1.2, or only of one protocol."""
    context = client_context()
    if ciphers:
        context.set_ciphers(ciphers)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if only:
        context.minimum_version = context.maximum_version = ssl.TLSVersion[only]
    return context


def spoken(address: tuple[str, int], context: ssl.SSLContext) -> tuple[str | None, str] | None:
    """Protocol and suite that a client gets; None: it is refused."""
    with (
        contextlib.suppress(ssl.SSLError, ConnectionError),
        socket.create_connection(address, 10) as sock,
        context.wrap_socket(sock) as tls,
    ):
        cipher = tls.cipher()
        assert cipher is not None
        return tls.version(), cipher[0]
    return None


@contextlib.contextmanager
def server(config: TlsConfig) -> Iterator[tuple[str, int]]:
    world = World(config)
    try:
        yield world.address
    finally:
        world.stop()


CASES = {
    "a cipher of Java's": {"tls_ciphers": ECDSA_128},
    "a cipher of OpenSSL's": {"tls_ciphers": " ECDHE-ECDSA-AES128-GCM-SHA256 ,"},
    "TLS 1.2": {"tls_protocols": "TLSv1.2"},
    "TLS 1.3": {"tls_protocols": "TLSv1.3"},
    "both": {"tls_protocols": "TLSv1.3,TLSv1.2"},
    "a cipher of 1.3": {"tls_ciphers": SUITES_13[0]},
    "ciphers of both": {"tls_ciphers": f"{SUITES_13[0]},{ECDSA_128}"},
    "ciphers of both, one protocol": {
        "tls_ciphers": f"{SUITES_13[0]},{ECDSA_128}",
        "tls_protocols": "TLSv1.2",
    },
    "nothing": {"tls_ciphers": " ", "tls_protocols": ""},
}
TAKEN = {
    "a cipher of Java's": {"128"},
    "a cipher of OpenSSL's": {"128"},
    "TLS 1.2": {"128", "256"},
    "TLS 1.3": {"1.3"},
    "both": {"128", "256", "1.3"},
    "a cipher of 1.3": {"1.3"},
    "ciphers of both": {"128", "1.3"},
    "ciphers of both, one protocol": {"128"},
    "nothing": {"128", "256", "1.3"},
}
"""Whom a server takes, of three clients that offer one thing each."""


@pytest.mark.parametrize("case", CASES)
def test_who_offers_only_what_is_left_out_is_refused(authority: Authority, case: str) -> None:
    clients = {
        "128": offer("ECDHE-ECDSA-AES128-GCM-SHA256"),
        "256": offer("ECDHE-ECDSA-AES256-GCM-SHA384"),
        "1.3": offer(only="TLSv1_3"),
    }
    with server(served(authority, **CASES[case])) as address:
        taken = {name for name, context in clients.items() if spoken(address, context)}
    assert taken == TAKEN[case]


@pytest.mark.parametrize("case", CASES)
def test_our_own_calls_offer_the_same(authority: Authority, case: str) -> None:
    """Beside servers that speak one thing each."""
    ours = make_client_context(TlsConfig(**CASES[case]))  # type: ignore[arg-type]
    taken = set()
    for name in ("128", "256", "1.3"):
        theirs = server_context(authority.issue(f"peer-{name}"))
        if name == "1.3":
            theirs.minimum_version = ssl.TLSVersion.TLSv1_3
        else:
            theirs.maximum_version = ssl.TLSVersion.TLSv1_2
            hashed = {"128": "SHA256", "256": "SHA384"}[name]
            theirs.set_ciphers(f"ECDHE-ECDSA-AES{name}-GCM-{hashed}")
        if _shakes_hands(ours, theirs):
            taken.add(name)
    assert taken == TAKEN[case]


def _shakes_hands(client: ssl.SSLContext, theirs: ssl.SSLContext) -> bool:
    near, far = socket.socketpair()

    def serve() -> None:
        with contextlib.suppress(OSError), theirs.wrap_socket(far, server_side=True) as tls:
            tls.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(near) as tls:
            return tls.version() is not None
    except OSError:
        return False
    finally:
        near.close()
        thread.join()
        far.close()


def test_the_certificate_of_test_mode_fits_the_ciphers() -> None:
    """Netty's has an RSA key, as most servers have: of such suites most settings are."""
    with server(TlsConfig(tls_ciphers=RSA_128)) as address:
        assert spoken(address, offer("ALL")) == ("TLSv1.2", "ECDHE-RSA-AES128-GCM-SHA256")
        assert spoken(address, offer("ECDHE-RSA-AES256-GCM-SHA384")) is None


def test_also_ciphers_that_are_older_than_their_protocol() -> None:
    """OpenSSL says of this one that it is of TLS 1.0; it is spoken in 1.2."""
    name = "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"
    with server(TlsConfig(tls_ciphers=name)) as address:
        assert spoken(address, offer("ALL")) == ("TLSv1.2", "ECDHE-ECDSA-AES128-SHA")


@pytest.mark.parametrize("name", [RSA_128, "TLS_RSA_WITH_AES_128_CBC_SHA"])
def test_ciphers_that_do_not_fit_the_certificate_stop_the_start(
    authority: Authority, name: str
) -> None:
    """It has an elliptic curve. Beside one that fits they may be named."""
    with pytest.raises(TlsSettingError, match=f"tls.ciphers = {name}: a server cannot use any of"):
        check_tls(served(authority, tls_ciphers=name), use_tls=False)
    check_tls(served(authority, tls_ciphers=f"{name},{ECDSA_128}"), use_tls=False)
    trust = str(authority.trust)
    asks = {"tls_server_need_client_auth": "require", "tls_server_trust_cert_path": trust}
    check_tls(served(authority, tls_ciphers=ECDSA_128, **asks), use_tls=False)
    check_tls(served(authority, tls_ciphers=SUITES_13[0], **asks), use_tls=False)


def test_ciphers_that_only_clients_can_use_stop_the_start_of_a_server() -> None:
    """Python gives its servers no parameters of Diffie and Hellman."""
    config = TlsConfig(tls_ciphers="TLS_DHE_RSA_WITH_AES_128_GCM_SHA256")
    with pytest.raises(TlsSettingError, match="begin with DHE are for our own calls only"):
        check_tls(config, use_tls=False)
    check_tls(dataclasses.replace(config, tls_server_mode="disabled"), use_tls=True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"tls_protocols": "TLSv1.2,TLSv1.4"},
            "tls.protocols = TLSv1.2,TLSv1.4: unknown protocol 'TLSv1.4': name one or both of "
            "TLSv1.2, TLSv1.3, or remove the key",
        ),
        (
            {"tls_protocols": "TLSv1.1"},
            "tls.protocols = TLSv1.1: none of them is spoken here: name one or both of TLSv1.2, "
            "TLSv1.3, or remove the key",
        ),
        (
            {"tls_ciphers": "TLS_ECDHE_RSA_WITH_AES_129_GCM_SHA256"},
            f"tls.ciphers = TLS_ECDHE_RSA_WITH_AES_129_GCM_SHA256: {ssl.OPENSSL_VERSION} has no "
            "cipher suite 'TLS_ECDHE_RSA_WITH_AES_129_GCM_SHA256' with certificates and "
            "encryption (did you mean ECDHE-RSA-AES128-GCM-SHA256?); names are Java's or "
            "OpenSSL's, separated by commas (openssl ciphers -stdname shows both); remove it, or "
            "the key",
        ),
        *(
            ({"tls_ciphers": f"{RSA_128},{wrong}"}, f"has no cipher suite '{wrong}'")
            for wrong in ("TLS_DH_anon_WITH_AES_128_GCM_SHA256", "ADH-AES128-GCM-SHA256", "ALL")
        ),
        *(
            ({"tls_ciphers": wrong}, f"has no cipher suite '{wrong}'")
            for wrong in ("NULL-SHA256", "PSK-AES128-CBC-SHA", "@SECLEVEL=0", "HIGH:!aNULL", "é")
        ),
        (
            {"tls_ciphers": RSA_128, "tls_protocols": "TLSv1.3"},
            f"tls.ciphers = {RSA_128}: none of them belongs to tls.protocols = TLSv1.3; name a "
            "suite of that protocol, or remove one of the keys",
        ),
    ],
)
@pytest.mark.parametrize("use_tls", [False, True])
def test_what_cannot_be_had_stops_the_start(
    settings: dict[str, str], words: str, *, use_tls: bool
) -> None:
    """In test mode, too, and whether it is a server's or a client's."""
    mode = "disabled" if use_tls else "permissive"
    with pytest.raises(TlsSettingError) as caught:
        check_tls(TlsConfig(tls_server_mode=mode, **settings), use_tls=use_tls)  # type: ignore[arg-type]
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "warnings"),
    [
        ({"tls_ciphers": RSA_128}, []),
        ({"tls_ciphers": ",".join(SUITES_13)}, []),
        (
            {"tls_ciphers": f"{RSA_128},{SUITES_13[0]}"},
            ["among the suites of TLS 1.3: TLS_CHACHA20_POLY1305_SHA256, TLS_AES_128_GCM_SHA256 "],
        ),
        ({"tls_ciphers": f"{RSA_128},{SUITES_13[0]}", "tls_protocols": "TLSv1.2"}, []),
        (
            {"tls_protocols": "SSLv3,TLSv1.2"},
            ["tls.protocols = SSLv3,TLSv1.2: SSLv3 not spoken here, only TLSv1.2 and TLSv1.3"],
        ),
    ],
)
def test_what_cannot_be_left_out_is_said(settings: dict[str, str], warnings: list[str]) -> None:
    found = check_tls(TlsConfig(**settings), use_tls=False)  # type: ignore[arg-type]
    assert len(found) == len(warnings)
    assert all(words in said for words, said in zip(warnings, found, strict=True))


def test_what_nobody_uses_is_not_judged() -> None:
    check_tls(TlsConfig(tls_server_mode="disabled", tls_ciphers="x"), use_tls=False)
