"""Options of the formats: known names, checked values, the connection and its secrets.

Runs on the driver, where a DataFrame is planned; the results are pickled to executors. Every option
that is not known is refused by name. Secrets come from a file or from Spark's configuration, never
from an option, which plans and the SQL page would show; they are in no repr and no exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from conf.credentials import Credentials
from conf.errors import ConfigError
from conf.settings_file import read_settings_file
from spark.sources.errors import OptionError
from tools.admin_client import is_address
from tools.nearest_names import nearest_names

TIMEOUT_MS: Final = 5_000
RETRY_MS: Final = 60_000
MAX_MS: Final = 3_600_000

CONNECTION_OPTIONS: Final = (
    *("nameServers", "aclFile", "timeoutMs", "retryMs"),
    *("tls", "tlsTrustCertFile", "tlsCertFile", "tlsKeyFile", "tlsKeyPasswordFile"),
)
"""Of every format that speaks with a cluster."""
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_REFUSED: Final = frozenset(
    name.lower() for name in ("accessKey", "secretKey", "password", "tlsKeyPassword")
)
CONFIGURATION: Final = "spark.rocketmq."
"""In front of a connection option's name as a Spark setting; accessKey and secretKey, too."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """TLS with files that every machine has at the same path. trust_cert: None: nobody is
    verified, as RocketMQ's own clients do by default."""

    trust_cert: str | None = None
    cert: str | None = None
    key: str | None = None
    key_password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Connection:
    """How to speak with a cluster. Picklable."""

    name_servers: tuple[str, ...]
    credentials: Credentials | None = None
    tls: TlsFiles | None = None
    timeout_ms: int = TIMEOUT_MS
    """Of one request."""
    retry_ms: int = RETRY_MS
    """How long to go on asking while no broker of a name answers, as in a failover."""


class Options:
    """The options of one read or write: case-insensitive, as Spark has them."""

    def __init__(self, given: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> None:
        """defaults: of Spark's configuration (`configured`)."""
        self._given = {name.lower(): value for name, value in given.items()}
        self._defaults = {name.lower(): value for name, value in (defaults or {}).items()}

    def __repr__(self) -> str:
        return f"Options({', '.join(sorted(self._given))})"

    def check_names(self, known: Iterable[str], file_format: str) -> None:
        """OptionError for a name that is not `known`, and for secrets."""
        names = {name.lower(): name for name in known}
        for name in self._given:
            if name in _REFUSED:
                raise OptionError(
                    f"option {name}: plans show options, so secrets come from a file (aclFile, "
                    f"tlsKeyPasswordFile) or from the settings {CONFIGURATION}accessKey and "
                    f"{CONFIGURATION}secretKey, which register(spark) reads"
                )
            if name not in names:
                nearest = nearest_names(name, names, 1)
                meant = (
                    f"; the nearest is {names[nearest[0]]}"
                    if nearest
                    else f": it has {', '.join(sorted(names.values()))}"
                )
                raise OptionError(f"format {file_format} has no option {name}{meant}")

    def text(self, name: str, default: str | None = None) -> str | None:
        """A text; None or `default` where it is not given or empty."""
        value = self._given.get(name.lower(), self._defaults.get(name.lower()))
        return value.strip() if value is not None and value.strip() else default

    def whole(self, name: str, default: int, *, least: int = 0, most: int = 2**63 - 1) -> int:
        """A whole number from `least` to `most`."""
        text = self.text(name)
        if text is None:
            return default
        number = int(text) if _NUMBER.fullmatch(text) else None
        if number is None or not least <= number <= most:
            raise OptionError(f"option {name}: {text!r} is no number from {least} to {most}")
        return number

    def flag(self, name: str, *, default: bool) -> bool:
        """true or false."""
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise OptionError(f"option {name}: {text!r} is neither true nor false")
        return text.lower() == "true"

    def names(self, *options: str) -> tuple[str, ...]:
        """The comma-separated names of the one option given; each once, in their order."""
        given = [option for option in options if self.text(option) is not None]
        if len(given) > 1:
            raise OptionError(f"options {' and '.join(given)}: give one of them")
        for option in given:
            if (text := self.text(option)) is not None:
                found = [name.strip() for name in text.split(",") if name.strip()]
                return tuple(dict.fromkeys(found))
        return ()

    def connection(self) -> Connection:
        """How to speak with the cluster. Reads the files of secrets. OptionError."""
        return Connection(
            name_servers=self._name_servers(),
            credentials=self._credentials(),
            tls=self._tls(),
            timeout_ms=self.whole("timeoutMs", TIMEOUT_MS, least=100, most=MAX_MS),
            retry_ms=self.whole("retryMs", RETRY_MS, least=0, most=MAX_MS),
        )

    def _name_servers(self) -> tuple[str, ...]:
        text = self.text("nameServers")
        if text is None:
            raise OptionError(
                "no name server: give the option nameServers, host:port;host:port, or the setting "
                f"{CONFIGURATION}nameServers before register(spark)"
            )
        found = tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
        for address in found:
            if not is_address(address):
                raise OptionError(f"option nameServers: {address!r} is not host:port")
        if not found:
            raise OptionError(f"option nameServers: {text!r} names none")
        return found

    def _credentials(self) -> Credentials | None:
        if (path := self._given.get("aclfile")) or self._defaults.get("accesskey") is None:
            path = path or self._defaults.get("aclfile")
            return None if not path else read_credentials(Path(path))
        access_key, secret_key = self._defaults["accesskey"], self._defaults.get("secretkey")
        if not secret_key:
            raise OptionError(
                f"{CONFIGURATION}accessKey is set, {CONFIGURATION}secretKey is not: set both"
            )
        return Credentials(access_key, secret_key)

    def _tls(self) -> TlsFiles | None:
        names = ("tlsTrustCertFile", "tlsCertFile", "tlsKeyFile", "tlsKeyPasswordFile")
        trust, cert, key, password = (self.text(name) for name in names)
        if not self.flag("tls", default=any((trust, cert, key, password))):
            return None
        if (cert is None) != (key is None):
            raise OptionError("options tlsCertFile and tlsKeyFile: give both or neither")
        secret = None if password is None else _read(Path(password), "tlsKeyPasswordFile").strip()
        return TlsFiles(trust, cert, key, secret)


def read_credentials(path: Path) -> Credentials:
    """accessKey and secretKey of a YAML file, as tools.yml of RocketMQ. OptionError without them;
    its text holds nothing of the file."""
    _read(path, "aclFile")
    try:
        values = {setting.key: setting.text for setting in read_settings_file(path)}
    except ConfigError:
        values = {}
    access_key, secret_key = values.get("accessKey"), values.get("secretKey")
    if not access_key or not secret_key:
        raise OptionError(
            f"option aclFile: {path} does not hold accessKey and secretKey as YAML: "
            "see conf/tools.yml of RocketMQ"
        )
    return Credentials(access_key, secret_key)


def _read(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError(f"option {option}: {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OptionError(f"option {option}: {path} is not UTF-8") from None


def configured(settings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The defaults in Spark's settings: names without `spark.rocketmq.`. OptionError: one that is
    unknown."""
    known = {name.lower() for name in (*CONNECTION_OPTIONS, "accessKey", "secretKey")}
    found = {}
    for name, value in settings:
        if name.startswith(CONFIGURATION):
            short = name.removeprefix(CONFIGURATION)
            if short.lower() not in known:
                raise OptionError(
                    f"setting {name} is unknown: known are {CONFIGURATION}* of "
                    f"{', '.join((*CONNECTION_OPTIONS, 'accessKey', 'secretKey'))}"
                )
            found[short] = value
    return found
