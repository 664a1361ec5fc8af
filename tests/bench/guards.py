"""What a broker of either world asks of its clients in some rows: a signed request, or TLS.

Runs in the process of the benchmark, before the broker starts. Both worlds get the same accounts
and the same certificate; Java takes the settings of TLS from its command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.bench.measuring import BROKERS
from tests.support.tls_files import Authority

_ACCESS_KEY: Final = "loadgen"
_SECRET_KEY: Final = "loadgen-secret"
_ACCOUNTS: Final = f"""
accounts:
- accessKey: {_ACCESS_KEY}
  secretKey: {_SECRET_KEY}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: PUB|SUB
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """How a broker is started, and which options each load needs then."""

    settings: Mapping[str, str] = field(default_factory=dict)
    jvm: tuple[str, ...] = ()
    options: Mapping[str, tuple[str, ...]]
    """By mode of the load generator; a mode without a key is one that it cannot do here."""


OPEN: Final = Guard(options={"send": (), "pull": (), "longpoll": ()})


def acl(side: str, directory: Path) -> Guard:
    """aclEnable, with one account that may send to every topic."""
    conf = directory / "java-home" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(_ACCOUNTS)
    settings = {"aclEnable": "true"}
    if BROKERS[side].is_ours:
        settings["rocketmqHome"] = str(conf.parent)
    return Guard(settings=settings, options={"send": (f"account={_ACCESS_KEY}:{_SECRET_KEY}",)})


def tls(side: str, directory: Path) -> Guard:
    """The server's certificate has an elliptic key; clients show none."""
    pair = Authority(directory / "tls").issue("server")
    settings = {
        "tls.test.mode.enable": "false",
        "tls.server.certPath": str(pair.certificate),
        "tls.server.keyPath": str(pair.key),
    }
    options = dict.fromkeys(("send", "pull"), ("tls=true",))
    if not BROKERS[side].is_ours:
        return Guard(jvm=tuple(f"-D{key}={to}" for key, to in settings.items()), options=options)
    return Guard(settings=settings, options=options)


GUARDS: Final[Mapping[str, Callable[[str, Path], Guard]]] = {"acl": acl, "tls": tls}
"""By the name that a setup gives."""
