"""EtcdConfig: where the etcd is that several controllers share, and how they prove who they are.

Read once, at the start of the controller's process, which checks it together with the controller's
own settings; the files with password and token are read by controller/etcd_login.py.

Tested by tests/controller/test_controller_startup.py, tests/controller/test_etcd_client.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from conf.config_fields import setting

HA_ENDPOINTS: Final = 3
"""With fewer members no etcd outlives the loss of one."""
_ENDPOINT: Final = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})/?"
)
_MOST_ENDPOINTS: Final = 32


class Endpoint(NamedTuple):
    """One member of an etcd."""

    host: str
    port: int
    uses_tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.uses_tls else 'http'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdConfig:
    """The keys of controllerStore=etcd."""

    # fmt: off
    etcd_endpoints: str = setting("",
        "client URLs of etcd's members, separated by commas or ';'; without a scheme https if "
        "etcdTrustedCaFile is set, else http; tried in turn")
    etcd_key_prefix: str = setting("/rocketmq/controllers",
        "keys begin with this, then /controllerDLegerGroup/")
    etcd_user: str = setting("", "etcd's user; unset: no login by name")
    etcd_password_file: str = setting("",
        "file with the password of etcdUser, not readable by others")
    etcd_token_file: str = setting("",
        "file with a token that etcd takes (JWT), in place of user and password; read again when "
        "etcd refuses the one at hand")
    etcd_trusted_ca_file: str = setting("",
        "PEM file: the authorities of etcd's certificates, whose host names are checked; unset: "
        "the system's")
    etcd_cert_file: str = setting("", "PEM file: this controller's certificate for etcd")
    etcd_key_file: str = setting("", "PEM file: the key of etcdCertFile, without a password")
    etcd_lease_seconds: int = setting(5,
        "another controller may lead once the leader has renewed nothing for this long", unit="s",
        ge=3, le=60)
    etcd_request_timeout_millis: int = setting(1_000,
        "how long to wait for an endpoint of etcd before the next one is tried", unit="ms", ge=100,
        le=10_000)
    # fmt: on

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Raises ValueError."""
        parts = [part.strip() for part in re.split("[,;]", self.etcd_endpoints) if part.strip()]
        found = tuple(dict.fromkeys(self._endpoint(part) for part in parts))
        if not found:
            raise ValueError(
                "etcdEndpoints is not set: controllerStore=etcd needs the client URLs of etcd's "
                "members, as in http://10.0.0.1:2379,http://10.0.0.2:2379,http://10.0.0.3:2379"
            )
        if len(found) > _MOST_ENDPOINTS:
            raise ValueError(f"etcdEndpoints names {len(found)}; {_MOST_ENDPOINTS} at most")
        return found

    def _endpoint(self, text: str) -> Endpoint:
        found = _ENDPOINT.fullmatch(text)
        if found is None or not 0 < int(found["port"]) < 65_536:
            raise ValueError(
                f"etcdEndpoints = {text!a:.100}: expected host:port, http://host:port or "
                "https://host:port, a port of 1 to 65535"
            )
        uses_tls = found["scheme"] == "https" or (
            found["scheme"] is None and bool(self.etcd_trusted_ca_file)
        )
        return Endpoint(found["host"].strip("[]"), int(found["port"]), uses_tls)

    def problems(self) -> list[tuple[str, str]]:
        """Key and reason of each setting with which nobody can speak to etcd."""
        found = []
        try:
            endpoints: tuple[Endpoint, ...] = self.endpoints()
        except ValueError as error:
            endpoints = ()
            found.append(("etcdEndpoints", str(error)))
        if not re.fullmatch(r"(?:/[A-Za-z0-9._-]{1,100}){1,10}", self.etcd_key_prefix):
            found.append(
                (
                    "etcdKeyPrefix",
                    f"etcdKeyPrefix = {self.etcd_key_prefix!a:.100}: expected /name or /name/name, "
                    "of letters, digits, '.', '_' and '-'",
                )
            )
        found += self._login_problems()
        if endpoints and not any(one.uses_tls for one in endpoints):
            for key, value in self._tls_files():
                if value:
                    text = f"{key} is set and no endpoint in etcdEndpoints begins with https://"
                    found.append((key, text))
        return found

    def _login_problems(self) -> list[tuple[str, str]]:
        found = []
        pairs = (
            ("etcdUser", self.etcd_user, "etcdPasswordFile", self.etcd_password_file),
            ("etcdCertFile", self.etcd_cert_file, "etcdKeyFile", self.etcd_key_file),
        )
        for key, value, other, other_value in pairs:
            if bool(value) != bool(other_value):
                there, lacking = (key, other) if value else (other, key)
                text = f"{there} is set and {lacking} is not: set both or neither"
                found.append((there, text))
        if self.etcd_token_file and (self.etcd_user or self.etcd_password_file):
            text = "etcdTokenFile and etcdUser are set: one way to log in, set only one of them"
            found.append(("etcdTokenFile", text))
        return found

    def _tls_files(self) -> tuple[tuple[str, str], ...]:
        return (
            ("etcdTrustedCaFile", self.etcd_trusted_ca_file),
            ("etcdCertFile", self.etcd_cert_file),
            ("etcdKeyFile", self.etcd_key_file),
        )

    def set_keys(self) -> tuple[str, ...]:
        """The keys that say something, although another store may be in use."""
        values = (
            ("etcdEndpoints", self.etcd_endpoints),
            ("etcdUser", self.etcd_user),
            ("etcdPasswordFile", self.etcd_password_file),
            ("etcdTokenFile", self.etcd_token_file),
            *self._tls_files(),
        )
        return tuple(key for key, value in values if value)

    def warnings(self) -> tuple[str, ...]:
        """What is valid, but possibly not intended."""
        found = []
        endpoints = self.endpoints()
        if len(endpoints) < HA_ENDPOINTS:
            found.append(
                f"etcdEndpoints names {len(endpoints)}, fewer than {HA_ENDPOINTS}: with such an "
                "etcd the loss of one machine stops all controllers; it is not highly available"
            )
        if any(not one.uses_tls for one in endpoints) and (self.etcd_user or self.etcd_token_file):
            found.append(
                "etcdEndpoints has http://: password and token go over the network as they are; "
                "use https://"
            )
        return tuple(found)

    def private_keys(self) -> list[Path]:
        """The file of the key that is used."""
        return [Path(self.etcd_key_file)] if self.etcd_key_file else []
