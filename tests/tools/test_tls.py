"""mqadmin over TLS: JAVA_OPT_EXT says so."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from remoting.client_tls import ClientTls
from remoting.server_tls import ServerTls
from remoting.tls_config import TlsConfig
from tests.support.tls_files import Authority
from tests.tools.fake_cluster import running_cluster
from tests.tools.mqadmin_bench import Bench
from tools.errors import AdminError
from tools.tls import find_tls


def test_nothing_of_tls_is_plain() -> None:
    assert find_tls({}) is None
    assert find_tls({"JAVA_OPT_EXT": "-Xmx1g", "JAVA_OPT": ""}) is None
    assert find_tls({"JAVA_OPT_EXT": "-Dtls.enable=false -Dtls.client.keyPath=/none"}) is None


@pytest.mark.parametrize("variable", ["JAVA_OPT", "JAVA_OPT_EXT"])
def test_either_variable_switches_it_on(variable: str) -> None:
    assert isinstance(find_tls({variable: "-Dtls.enable=true"}), ClientTls)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            "-Dtls.enable=1",
            "environment variable JAVA_OPT_EXT: tls.enable = 1: expected true or false",
        ),
        (
            "-Dtls.enable=true -Dtls.test.mode.enable=false -Dtls.client.keyPath=/none",
            "tls.client.keyPath is set but tls.client.certPath is not: a certificate needs its "
            "key; set both or neither",
        ),
    ],
)
def test_settings_that_cannot_be_used(options: str, problem: str) -> None:
    with pytest.raises(AdminError) as caught:
        find_tls({"JAVA_OPT_EXT": options})
    assert str(caught.value) == problem


def test_a_command_over_tls(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = Authority(tmp_path)
    pair = files.issue("server")
    config = TlsConfig(
        tls_server_mode="enforcing",
        tls_test_mode_enable=False,
        tls_server_cert_path=str(pair.certificate),
        tls_server_key_path=str(pair.key),
    )
    own = tmp_path / "tls.properties"
    own.write_text(
        "tls.test.mode.enable=false\ntls.client.authServer=true\n"
        f"tls.client.trustCertPath={files.trust}\n"
    )
    with running_cluster(ServerTls(config)) as cluster:
        bench = Bench(cluster, capsys)
        refused = bench.run("clusterList")
        assert (refused.code, refused.out) == (1, "")
        assert "connection closed: read failed: Connection reset by peer" in refused.err
        monkeypatch.setenv("JAVA_OPT_EXT", f"-Dtls.enable=true -Dtls.config.file={own}")
        assert cluster.address in bench.run("clusterList").out


def test_a_plain_command_does_not_import_tls() -> None:
    """It would take longer than many commands."""
    code = "import sys, tools.command_line; sys.exit('ssl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
