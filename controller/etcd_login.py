"""What a controller shows etcd to be let in: user and password, a token, a certificate.

Reads files, at the start to check them and again when etcd refuses what was shown, as they may have
been changed meanwhile. No secret is in a log, an error's text or a setting.
"""

from __future__ import annotations

import os
import ssl
import stat
from dataclasses import dataclass, field
from typing import Final

from conf.errors import ConfigError
from controller.etcd_config import EtcdConfig

MOST_SECRET_BYTES: Final = 8_192


@dataclass(frozen=True, slots=True)
class EtcdLogin:
    """What is shown; at most one of password and token."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is shown."""
        return not (self.user or self.token)


def read_login(config: EtcdConfig) -> EtcdLogin:
    """Raises ConfigError: a file cannot be read, others may read it, or it is no secret."""
    if config.etcd_token_file:
        return EtcdLogin(token=_secret("etcdTokenFile", config.etcd_token_file))
    if config.etcd_user:
        password = _secret("etcdPasswordFile", config.etcd_password_file)
        return EtcdLogin(config.etcd_user, password)
    return EtcdLogin()


def _secret(key: str, path: str) -> str:
    try:
        # Not blocking: a pipe would keep the start waiting.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode):
                raise ConfigError([f"{key} = {path} is not a file"])
            if mode & (stat.S_IRWXO | stat.S_IWGRP):
                raise ConfigError(
                    [
                        f"{key} = {path} has mode {stat.S_IMODE(mode):04o}: other users may read "
                        f"or change it; chmod 600 {path} (0640 for a group that reads is "
                        "accepted), and change the secret if somebody may have read it"
                    ]
                )
            data = file.read(MOST_SECRET_BYTES + 1).strip()
        text = data.decode()
    except OSError as error:
        raise ConfigError([f"{key} = {path} cannot be read: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{key} = {path} holds bytes that are no UTF-8 text"]) from error
    if not text or len(data) > MOST_SECRET_BYTES or not text.isprintable():
        raise ConfigError([f"{key} = {path}: expected one line of 1 to {MOST_SECRET_BYTES} bytes"])
    return text


def make_context(config: EtcdConfig) -> ssl.SSLContext | None:
    """The TLS context of all connections to etcd; None: no endpoint uses TLS. Raises ConfigError
    that names the file."""
    if not any(one.uses_tls for one in config.endpoints()):
        return None
    ca = config.etcd_trusted_ca_file or None
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=ca)
    except OSError as error:  # includes ssl.SSLError
        raise ConfigError(
            [
                f"etcdTrustedCaFile = {ca} cannot be used: {_reason(error)}; it must hold the "
                "certificates of the authorities in PEM form"
            ]
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # On by default since Python 3.13. etcd and its tools take authorities that it refuses: those
    # without a key usage or a key identifier, as many a house has made its own.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if config.etcd_cert_file:
        try:
            # A key with a password would be asked for at the terminal.
            context.load_cert_chain(config.etcd_cert_file, config.etcd_key_file, password=b"")
        except (OSError, ValueError) as error:
            raise ConfigError(
                [
                    f"etcdCertFile = {config.etcd_cert_file} and etcdKeyFile = "
                    f"{config.etcd_key_file} cannot be used: {_reason(error)}; both in PEM form, "
                    "the key without a password"
                ]
            ) from error
    return context


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or error)
