"""The account that mqadmin signs its requests with: $ROCKETMQ_HOME/conf/tools.yml, if there is one.

Read once per command in its main thread. Without the file nothing is signed, and the modules
that read it are not imported. (Java: AclUtils.getAclRPCHook.)
"""

from __future__ import annotations

from pathlib import Path

from remoting.signature import RequestSigner
from tools.errors import AdminError


def find_signer(home: str | None) -> RequestSigner | None:
    """The signer of <home>/conf/tools.yml; None without home, file or either key in it.

    AdminError for a home that does not exist and a file that cannot be read: unsigned requests
    would be refused with a misleading reason.
    """
    if home is None:
        return None
    if not Path(home).is_dir():
        raise AdminError(f"ROCKETMQ_HOME: {home} is not a directory: correct it or unset it")
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
