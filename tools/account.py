"""As whom mqadmin asks: the account in $ROCKETMQ_HOME/conf/tools.yml, if there is one.

Read once per command in its main thread. Without the file nothing is signed, and nothing of what
reads it is imported. (Java: AclUtils.getAclRPCHook.)
"""

from __future__ import annotations

from pathlib import Path

from remoting.signature import RequestSigner
from tools.errors import AdminError


def find_signer(home: str | None) -> RequestSigner | None:
    """The signer of <home>/conf/tools.yml; None without home, file or either key in it.

    AdminError for a home that is not there and a file that cannot be read: unsigned requests would
    be refused for another reason.
    """
    if home is None:
        return None
    if not Path(home).is_dir():
        raise AdminError(f"ROCKETMQ_HOME: {home} is no directory: set it right, or unset it")
    directory = Path(home) / "conf"
    if not (directory / "tools.yml").exists():
        return None
    from conf.credentials import find_credentials
    from conf.errors import ConfigError

    try:
        found = find_credentials(directory)
    except ConfigError as error:
        raise AdminError("; ".join(error.problems)) from error
    return None if found is None else RequestSigner(found.access_key, found.secret_key)
