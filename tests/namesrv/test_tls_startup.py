"""The TLS settings of a name server's start."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.errors import StartupExitError
from namesrv.namesrv_startup import NamesrvOptions, load_namesrv_options
from remoting.tls_config import TlsConfig, TlsMode
from tests.support.tls_files import Authority

HOME = {"ROCKETMQ_HOME": "/opt/mq"}


def load(tmp_path: Path, text: str = "", java_options: str = "") -> NamesrvOptions:
    path = tmp_path / "n.conf"
    path.write_text(text)
    return load_namesrv_options(["-c", str(path)], HOME | {"JAVA_OPT_EXT": java_options})


def test_nothing_configured(tmp_path: Path) -> None:
    options = load(tmp_path)
    assert (options.tls, options.warnings) == (TlsConfig(), ())


def test_settings_of_every_place(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "files").issue("server")
    file = tmp_path / "tls.properties"
    file.write_text(f"tls.server.certPath={pair.certificate}\ntls.server.keyPath={pair.key}\n")
    text = f"tls.test.mode.enable=false\ntls.config.file={file}\n"
    options = load(tmp_path, text, "-Dtls.server.mode=enforcing -Dtls.enable=true")
    assert options.tls.mode is TlsMode.enforcing
    assert options.tls.tls_server_cert_path == str(pair.certificate)
    assert options.warnings == (
        "these settings of RocketMQ have no effect in this broker: tls.enable "
        "(environment variable JAVA_OPT_EXT)",
    )


def test_what_works_perhaps_not_as_meant_is_told(tmp_path: Path) -> None:
    (warning,) = load(tmp_path, "tls.server.mode=none\n").warnings
    assert warning.startswith("tls.server.mode = none is not one of ")


def test_files_that_cannot_be_used_end_the_start(tmp_path: Path) -> None:
    with pytest.raises(StartupExitError, match=r"tls\.server\.certPath is not set") as caught:
        load(tmp_path, "tls.test.mode.enable=false\n")
    assert (caught.value.exit_code, caught.value.to_stdout) == (255, False)
