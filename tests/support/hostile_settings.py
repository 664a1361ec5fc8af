"""Texts of requests 25 and 318 that try to set what a request must not: CVE-2023-33246 and
CVE-2023-37582, their relatives, and the disguises that java.util.Properties allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

CVE_KEYS: Final = (
    # CVE-2023-33246: executed by the filter server's starter.
    "rocketmqHome",
    "filterServerNums",
    # CVE-2023-37582: the request writes this file.
    "configStorePath",
    "kvConfigPath",
    # What the fixes forbade, and relatives: paths, ports, names, lists of what is forbidden.
    "brokerConfigPath",
    "configBlackList",
    "configStorePathName",
    "storePathRootDir",
    "storePathCommitLog",
    "logDir",
    "listenPort",
    "haListenPort",
    "bindAddress",
    "namesrvAddr",
    "brokerIP1",
    "brokerName",
    "brokerId",
    "aclEnable",
    "adminAllowedAddresses",
    "haSharedSecretFile",
    "tls.server.keyPath",
    "tls.server.keyPassword",
    "umask",
    "metricsDumpPath",
    "productEnvName",
)


def disguises(key: str, harmless: str) -> Iterator[str]:
    """Ways to write that `key` is to be /tmp/owned, some beside `harmless`, a change ("a=1") that
    is allowed."""
    escaped = "".join(f"\\u{ord(letter):04x}" for letter in key)
    middle = len(key) // 2
    yield f"{key}=/tmp/owned"
    yield f"{key}:/tmp/owned"
    yield f"{key} /tmp/owned"
    yield f" \t\f{key}\t = \t/tmp/owned"
    yield f"{escaped}=/tmp/owned"
    yield f"{key[:middle]}\\\n  {key[middle:]}=/tmp/owned"
    yield f"{key[:middle]}\\\r\n\t{key[middle:]}=/tmp/owned"
    for end in ("\n", "\r", "\r\n", "\n\n#\n", "\n! a\\\n"):
        yield f"{harmless}{end}{key}=/tmp/owned"
    yield f"{key}=/tmp/owned\n{harmless}"
    yield f"{harmless}\n{key}=/tmp/owned\n{harmless}"
    # In the value of an allowed key: one more line in the file, if it was written as it is.
    for line_end in ("\\n", "\\r", "\\u000a", "\\u000d", "\\u0085", "\\u2028", "\\\n \\n"):
        yield f"{harmless}{line_end}{key}=/tmp/owned"
        yield f"{harmless}{line_end}{key}\\=/tmp/owned"
    # In the key.
    for text in (
        f"{key}\\u0000",
        f"{key}\\n",
        f"\\n{key}",
        f"{key}\\ ",
        f"{key}\\=x",
        f"\\u200b{key}",
    ):
        yield f"{text}=/tmp/owned"
    yield f"{harmless.partition('=')[0]}\\n{key}=/tmp/owned"
    yield f"{key}\0=/tmp/owned"
    yield f"{key.upper()}=/tmp/owned"
    yield f"{key}.x=/tmp/owned"
    yield f"{key}=\\u12"


def hostile_texts(protected: Iterable[str], harmless: str) -> list[str]:
    """Every disguise of CVE_KEYS, each of `protected` alone and behind an allowed change, and what
    is wrong without a key."""
    texts = [text for key in CVE_KEYS for text in disguises(key, harmless)]
    texts += [text for key in protected for text in (f"{key}=x", f"{harmless}\n{key}=x")]
    name = harmless.partition("=")[0]
    texts += [
        "=x",
        "\\u0000=x",
        f"{harmless}\\u0000",
        f"{harmless};\\n05",
        f"{harmless};\\u202805",
        f"{name}=-c touch /tmp/owned",
        f"{name}=$(touch /tmp/owned)",
        f"{name}={'1' * 2_000}",
        "\n".join(f"k{number}=v" for number in range(100)),
    ]
    return texts
