"""The settings that request 25 may change, and when a new value takes effect. Data only.

An allow-list: a key that is not in it can only be changed in the settings file before a start. It
is collected from the declarations of the settings (`changeable`, see conf.config_fields.setting):
none is a path, an address, a port, a name, or anything that is ever executed, and none that the
files on disk depend on (file sizes, queue layout, delay levels, a slave's role). A key may be NOW
only if every reader of it sees the new value: ConfigApplication gives it to them, in this process
and in `store`. Where only some would, it is AFTER_RESTART.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.settings.broker_config import BrokerConfig
from conf.config_fields import Applies, field_specs
from store.message_store_config import MessageStoreConfig

RETENTION_KEYS: Final = frozenset(
    {
        "fileReservedTime",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "diskSpaceWarningLevelRatio",
        "diskSpaceCleanForciblyRatio",
        "cleanFileForciblyEnable",
        "deleteFileBatchMax",
    }
)
"""Held by process `store` (RetentionRules): an operator whose disk fills up cannot wait."""

CHANGE_RETENTION: Final = "change_retention"
"""The command that takes them to `store`; argument `settings`: all of them, key to text."""

CHANGEABLE: Final[Mapping[str, Applies]] = {
    spec.key: spec.changeable
    for cls in (BrokerConfig, MessageStoreConfig)
    for spec in field_specs(cls)
    if spec.changeable is not None
}
"""Key to when a new value takes effect; the two classes are all that request 25 can change."""
