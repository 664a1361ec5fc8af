"""A pair of real brokers with a secret of every kind: none of them is in anything that comes out.

Accounts' keys, the group's shared secret, the passwords of TLS keys (one by JAVA_OPT_EXT). Looked
into: logs, terminals, /proc of every process, all files below store, logs and run directories,
metrics, dumps, what -p prints, the answers that show settings or state, and those to errors.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from remoting.signature import RequestSigner
from tests.broker.acl.test_acl_served import OPERATOR, TOOLS, client, home_of
from tests.support.broker_group import SLAVE, SYNC_MASTER, Group, log_of
from tests.support.deadline import wait_until
from tests.support.our_broker import HOME, OurBroker
from tests.support.tls_files import Authority

ACCOUNT_KEY, GROUP_SECRET = "kept-account-key", "kept-secret-of-this-group"
SERVER_PASSWORD, CLIENT_PASSWORD = "kept-server-password", "kept-client-password"
NEW_KEY: Final = "kept-key-of-a-new-account"
SECRETS: Final = (ACCOUNT_KEY, GROUP_SECRET, SERVER_PASSWORD, CLIENT_PASSWORD, NEW_KEY)
ACCOUNTS: Final = f"""
accounts:
- accessKey: application
  secretKey: {ACCOUNT_KEY}
  topicPerms: [TBW102=PUB|SUB]
- accessKey: operator
  secretKey: operator-secret
  admin: true
"""
SHOWING: Final = (26, 28, 52, 54, 21, 43, 45, 201, 203, 204, 315, 907, 28_907)
"""Answers that show settings, tables or state. The last is the access files, for slaves: signed by
an admin it has every key, so only refused ones are looked at."""


def printed_settings(broker: OurBroker) -> bytes:
    """What `mqbroker -p` prints with the broker's own file."""
    command = [
        sys.executable,
        "-m",
        "broker",
        "-p",
        "-c",
        str(broker.log_dir.parent / "broker.conf"),
    ]
    environment = {**os.environ, "ROCKETMQ_HOME": str(HOME)}
    done = subprocess.run(command, cwd=HOME, env=environment, capture_output=True, timeout=60)
    return done.stdout + done.stderr


def shown_by_processes(broker: OurBroker) -> Iterator[tuple[str, bytes]]:
    """Command lines, and environments: their titles have taken the place of both."""
    for name, pid in {**broker.children(), "supervisor": broker.pid}.items():
        for part in ("cmdline", "environ"):
            yield f"{name} {part}", Path(f"/proc/{pid}/{part}").read_bytes()


def shown_by_answers(broker: OurBroker) -> Iterator[tuple[str, bytes]]:
    signers = {
        "nobody": None,
        "forger": RequestSigner("operator", "guessed"),
        "application": RequestSigner("application", ACCOUNT_KEY),
        "operator": OPERATOR,
    }
    for who, signer in signers.items():
        with client(broker, signer) as asking:
            asking.send("TBW102", 0, b"x")
            change = {"accessKey": f"new-{who}", "secretKey": NEW_KEY}
            asked = [(50, change), (50, {"accessKey": "s", "secretKey": NEW_KEY})]
            asked += [(code, {"topic": "a\nb", "accessKey": "x"}) for code in SHOWING]
            for code, fields in asked:
                answer = asking.call(code, fields)
                if who != "operator" or code != 28_907:
                    text = f"{answer.remark} {answer.ext_fields}".encode()
                    yield f"{who} {code}", answer.body + text
    with client(broker, OPERATOR, "namesrv") as asking:
        for code in (319, 106, 206):
            yield f"name server {code}", asking.call(code, {}).body
    for path in ("metrics", "healthz", "readyz", "nothing"):
        url = f"http://127.0.0.1:{broker.ports['metrics']}/{path}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                yield path, answer.read()
        except urllib.error.HTTPError as error:
            yield path, error.read()


def shown_by_files(*roots: Path) -> Iterator[tuple[str, bytes]]:
    for root in roots:
        for path in root.rglob("*"):
            if path.is_file():
                yield str(path), path.read_bytes()


@pytest.mark.slow
def test_no_secret_comes_out(group: Group, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "keys")
    server = authority.issue("server", password=SERVER_PASSWORD)
    other = authority.issue("client", password=CLIENT_PASSWORD)
    shared = tmp_path / "ha.secret"
    shared.write_text(GROUP_SECRET)
    shared.chmod(0o600)
    brokers = (group.first, group.second)
    for broker, role in zip(brokers, (SYNC_MASTER, SLAVE), strict=True):
        home = home_of(tmp_path / f"home-{role['brokerRole']}", ACCOUNTS)
        (home / "conf" / "tools.yml").write_text(TOOLS)
        broker.env = {"JAVA_OPT_EXT": f"-Dtls.client.keyPassword={CLIENT_PASSWORD}"}
        settings = {
            "aclEnable": "true",
            "rocketmqHome": home,
            "haSharedSecretFile": shared,
            "metricsDumpIntervalSeconds": 1,
            "tls.test.mode.enable": "false",
            "tls.server.keyPath": server.key,
            "tls.server.certPath": server.certificate,
            "tls.server.keyPassword": SERVER_PASSWORD,
            "tls.client.keyPath": other.key,
            "tls.client.certPath": other.certificate,
        }
        group.start(broker, role, **settings)
    first, second = brokers
    with client(first, OPERATOR) as operator:
        wait_until(lambda: operator.send("TBW102", 0, b"x").code == 0, 30)
    wait_until(lambda: log_of(second) == log_of(first), 30)
    wait_until(lambda: any((first.store_dir / "metrics").rglob("*.jsonl*")), 30)
    shown = [each for broker in brokers for each in shown_by_processes(broker)]
    shown += shown_by_answers(first)
    shown += [(f"{broker.store_dir} -p", printed_settings(broker)) for broker in brokers]
    assert any(b"haSharedSecretFile=" in text for name, text in shown if name.endswith("-p"))
    for broker in brokers:
        shown.append((f"{broker.store_dir} output", broker.output().encode()))
    run_directory = Path(os.environ["ROCKETMQ_RUN_DIR"])
    shown += shown_by_files(*(b.store_dir for b in brokers), *(b.log_dir for b in brokers))
    shown += shown_by_files(run_directory)
    assert len(shown) > 100
    found = [(name, word) for name, text in shown for word in SECRETS if word.encode() in text]
    assert found == []
    # They are there to be found: the keys in the access file, the password in the settings.
    home = Path(str(tmp_path / "home-SYNC_MASTER"))
    assert NEW_KEY in (home / "conf" / "plain_acl.yml").read_text()
    assert SERVER_PASSWORD in (first.log_dir.parent / "broker.conf").read_text()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"tls.server.keyPassword": "kept-wrong-one"}, "tls.server.key"),
        ({"haSharedSecretFile": "{short}"}, "haSharedSecretFile"),
        ({"tls.server.keyPassword": "kept-wrong-one", "listenPrt": 1}, "listenPrt"),
    ],
)
def test_a_start_that_fails_shows_none(
    tmp_path: Path, settings: dict[str, object], words: str
) -> None:
    authority = Authority(tmp_path / "keys")
    server = authority.issue("server", password=SERVER_PASSWORD)
    short = tmp_path / "short"
    short.write_text("kept-short")
    short.chmod(0o600)
    given = {key: str(value).format(short=short) for key, value in settings.items()}
    files = {
        "tls.test.mode.enable": "false",
        "tls.server.keyPath": server.key,
        "tls.server.certPath": server.certificate,
    }
    broker = OurBroker(tmp_path / "broker", **files, **given)
    with broker.start(wait=False):
        assert broker.wait_ended(30) == 255
        assert words in broker.output()
        assert "kept-" not in broker.output()
