"""The TLS settings of a broker's start: where they come from, what is refused, what is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.broker_startup import load_startup_options
from broker.out.outgoing_client import outgoing_client
from broker.settings.startup_options import StartupOptions
from conf.errors import StartupExitError
from remoting.tls_config import TlsConfig, TlsMode
from tests.support.tls_files import Authority

HOME = {"ROCKETMQ_HOME": "/opt/mq"}


def load(tmp_path: Path, text: str = "", java_options: str = "") -> StartupOptions:
    path = tmp_path / "b.conf"
    path.write_text(text)
    return load_startup_options(["-c", str(path)], HOME | {"JAVA_OPT_EXT": java_options})


def test_nothing_configured_is_permissive_test_mode(tmp_path: Path) -> None:
    options = load(tmp_path)
    assert (options.tls, options.client.use_tls) == (TlsConfig(), False)
    assert (options.tls.mode, options.tls.tls_test_mode_enable) == (TlsMode.permissive, True)
    assert options.warnings == ()


@pytest.mark.parametrize(
    ("text", "java_options", "mode", "use_tls"),
    [
        ("tls.server.mode=enforcing", "", "enforcing", True),
        ("", "-Dtls.server.mode=enforcing", "enforcing", True),
        ("tls.server.mode=disabled", "-Dtls.server.mode=enforcing", "disabled", False),
        ("", "-Dtls.enable=true", "permissive", True),
        ("useTLS=true", "-Dtls.enable=false", "permissive", True),
        ("tls.enable=true", "", "permissive", True),
        ("tls.server.mode=enforcing\nuseTLS=false", "", "enforcing", False),
    ],
)
def test_where_settings_come_from(
    tmp_path: Path, text: str, java_options: str, mode: str, use_tls: bool
) -> None:
    options = load(tmp_path, text, java_options)
    assert (options.tls.mode, options.client.use_tls) == (mode, use_tls)
    assert options.settings()["useTLS"] == str(use_tls).lower()


def test_the_tls_file_wins(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text("tls.test.mode.enable=true\n")
    text = f"tls.test.mode.enable=false\ntls.config.file={file}\n"
    assert load(tmp_path, text).tls.tls_test_mode_enable


def test_protocols_and_ciphers_from_every_source(tmp_path: Path) -> None:
    suite = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    file = tmp_path / "tls.properties"
    file.write_text(f"tls.ciphers={suite}\n")
    options = load(tmp_path, f"tls.config.file={file}\n", "-Dtls.protocols=TLSv1.2")
    assert (options.tls.tls_ciphers, options.tls.tls_protocols) == (suite, "TLSv1.2")
    assert options.warnings == ()
    with pytest.raises(StartupExitError, match=r"tls\.protocols = TLSv1: none of them is spoken"):
        load(tmp_path, "tls.protocols=TLSv1\n")
    (told,) = load(tmp_path, "tls.ciphers=TLS_AES_256_GCM_SHA384\n").warnings
    assert "cannot choose among the suites of TLS 1.3" in told


def test_children_get_them_and_nobody_else(tmp_path: Path) -> None:
    options = load(tmp_path, "tls.server.keyPassword=secret\ntls.server.mode=enforcing\n")
    assert [key for key in options.settings() if key.startswith("tls")] == []
    assert StartupOptions.from_settings(options.child_settings()).tls == options.tls


def test_files_that_cannot_be_used_end_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupExitError) as caught:
        load(tmp_path, "tls.test.mode.enable=false\n")
    assert (caught.value.exit_code, caught.value.to_stdout) == (255, False)
    assert caught.value.text == (
        "tls.test.mode.enable is false and tls.server.certPath is not set: set it to a PEM file, "
        "set tls.test.mode.enable=true to work without files, or set tls.server.mode=disabled"
    )
    with pytest.raises(StartupExitError, match="expected true or false"):
        load(tmp_path, "tls.enable=perhaps\n")


OWN = "this broker cannot reach its own"


@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        (
            "tls.server.mode=on",
            [
                "tls.server.mode = on is not one of disabled, permissive, enforcing: "
                "using permissive",
            ],
        ),
        (
            "tls.server.mode=enforcing\ntls.enable=false",
            [f"tls.enable = false: {OWN} enforcing name server"],
        ),
        (
            "tls.server.mode=disabled\ntls.enable=true",
            [f"tls.server.mode = disabled: {OWN} name server by TLS"],
        ),
        ("tls.server.mode=disabled\ntls.enable=true\nnamesrvAddr=a:1", []),
        ("tls.server.mode=enforcing\ntls.enable=false\nembeddedNamesrvEnable=false", []),
    ],
)
def test_what_is_told(tmp_path: Path, text: str, warnings: list[str]) -> None:
    assert list(load(tmp_path, text).warnings) == warnings


def test_a_name_server_that_asks_its_own_broker_for_a_certificate(tmp_path: Path) -> None:
    files = Authority(tmp_path / "files")
    pair = files.issue("server")
    text = (
        f"tls.test.mode.enable=false\ntls.enable=true\ntls.server.certPath={pair.certificate}\n"
        f"tls.server.keyPath={pair.key}\ntls.server.need.client.auth=require\n"
        f"tls.server.authClient=true\ntls.server.trustCertPath={files.trust}\n"
    )
    assert load(tmp_path, text).warnings == (
        "tls.server.need.client.auth = require: this broker needs tls.client.certPath and "
        "tls.client.keyPath to reach its own name server",
    )
    own = f"tls.client.certPath={pair.certificate}\ntls.client.keyPath={pair.key}\n"
    assert load(tmp_path, text + own).warnings == ()


@pytest.mark.parametrize(("text", "secure"), [("", False), ("useTLS=true", True)])
def test_the_outgoing_client(tmp_path: Path, text: str, secure: bool) -> None:
    client = outgoing_client(load(tmp_path, text), None)
    assert (client._wrap is not None) is secure
