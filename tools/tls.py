"""Whether mqadmin speaks TLS: -Dtls.enable=true in JAVA_OPT or JAVA_OPT_EXT, as with RocketMQ.

Read once per command in its main thread; if these variables do not mention TLS, its modules
are not imported. The other tls.client.* settings come from there, too, or from tls.config.file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from conf.java_options import tls_options
from tools.errors import AdminError

if TYPE_CHECKING:
    from remoting.client_tls import ClientTls


def find_tls(environment: Mapping[str, str]) -> ClientTls | None:
    """The factory of TLS connections; None for plain ones. AdminError for settings that cannot be
    used."""
    if not tls_options(environment):
        return None
    from conf.config_loader import KeySpace, build, load_settings
    from conf.errors import ConfigError
    from conf.tls_file import with_tls_file
    from remoting.client_tls import ClientTls
    from remoting.remoting_config import RemotingClientConfig
    from remoting.tls_config import DEFAULT_TLS_CONFIG_FILE, TlsConfig
    from remoting.tls_context import TlsSettingError

    client_keys = KeySpace((TlsConfig, RemotingClientConfig))
    tls_keys = KeySpace((TlsConfig,))
    try:
        loaded = load_settings(client_keys, environment=environment)
        if not build(RemotingClientConfig, loaded.values).use_tls:
            return None
        loaded = with_tls_file(tls_keys, loaded, DEFAULT_TLS_CONFIG_FILE)
        tls = ClientTls(build(TlsConfig, loaded.values))
        tls.prepare()
    except (ConfigError, TlsSettingError) as error:
        raise AdminError("; ".join(str(error).splitlines())) from error
    return tls
