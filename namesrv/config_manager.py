"""ConfigManager: shows and changes the name server's settings at run time (319, 318).

What may be changed, and how, is in conf/changeable_settings.py; here are the answers. Any thread.
"""

from __future__ import annotations

from typing import Final

from conf.changeable_settings import ChangeableSettings, Program, changeable_keys
from conf.errors import ConfigError
from conf.settings_change import ProtectedSettingError
from namesrv.namesrv_config import NamesrvConfig
from remoting.errors import RequestError
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode

CHANGEABLE_KEYS: Final = changeable_keys(NamesrvConfig)
_PROGRAM: Final = Program("namesrv", RequestCode.UPDATE_NAMESRV_CONFIG)


class ConfigManager(ChangeableSettings[NamesrvConfig]):
    """The name server's settings in force and their file."""

    def __init__(self, config: NamesrvConfig, *others: object) -> None:
        super().__init__(_PROGRAM, config, *others)

    def update(self, text: str, who: str) -> str:
        """Apply the changes of a properties text sent by `who`; returns what was done.

        Raises RequestError: NO_PERMISSION for a key that must not be changed, SYSTEM_ERROR for an
        invalid value or a file that cannot be written; nothing is changed then.
        """
        try:
            return super().update(text, who)
        except ProtectedSettingError as error:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"Can not update config {error.key!r:.80}: {error.reason}."
                f" Changeable: {', '.join(sorted(CHANGEABLE_KEYS))}",
            ) from error
        except ConfigError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"nothing changed: {error}") from error
