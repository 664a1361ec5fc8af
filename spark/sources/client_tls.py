"""client_tls: the TLS of a connection's options.

Driver and executors. Tested by tests/spark/sources/test_cluster.py.
"""

from __future__ import annotations

from typing import Final

from remoting.client_tls import ClientTls
from remoting.tls_config import TlsConfig
from remoting.tls_context import TlsSettingError
from spark.sources.errors import OptionError
from spark.sources.options import TlsFiles

_TLS_OPTIONS: Final = {
    "tls.client.trustCertPath": "tlsTrustCertFile",
    "tls.client.certPath": "tlsCertFile",
    "tls.client.keyPath": "tlsKeyFile",
    "tls.client.keyPassword": "tlsKeyPasswordFile",
}
"""RocketMQ's settings, by which errors name a file, and the options that give it here."""


def client_tls(files: TlsFiles) -> ClientTls:
    """OptionError: what is wrong with which file."""
    tls = ClientTls(
        TlsConfig(
            tls_test_mode_enable=False,
            tls_client_trust_cert_path=files.trust_cert,
            tls_client_auth_server=files.trust_cert is not None,
            tls_client_cert_path=files.cert,
            tls_client_key_path=files.key,
            tls_client_key_password=files.key_password,
        )
    )
    try:
        tls.prepare()
    except TlsSettingError as error:
        text = " ".join(str(error).split())
        for setting, option in _TLS_OPTIONS.items():
            text = text.replace(setting, option)
        raise OptionError(f"TLS: {text}") from None
    return tls
