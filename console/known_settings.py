"""What is known of a broker's settings: defaults, and what a change needs, by who the broker is.

Pure but for its file, broker_settings.json, which is made from the declarations of this project's
broker (tests/broker/known_settings_file.py) and read once. It has the defaults of
RocketMQ's 4.9 and 5.x, too. Must not know how a page shows it.

Tested by tests/console/test_broker_pages.py.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final, Literal

import msgspec

from console.snapshot import BrokerSeen

_FILE: Final = Path(__file__).parent / "broker_settings.json"


class KnownSetting(msgspec.Struct, frozen=True):
    """One key. default None: it depends on the host, or is not known. changeable None: only in the
    settings file."""

    default: str | None
    changeable: Literal["now", "after a restart"] | None
    java4: str | None
    java5: str | None


_read: Final = msgspec.json.Decoder(dict[str, KnownSetting]).decode


@functools.cache
def known_settings() -> dict[str, KnownSetting]:
    """All keys of this project's broker."""
    return _read(_FILE.read_bytes())


def find_known(broker: BrokerSeen, key: str) -> KnownSetting | None:
    """What is known of a key, of a broker of this project; None: nothing, it is another's."""
    return known_settings().get(key) if broker.is_ours else None


def find_default(broker: BrokerSeen, key: str) -> str | None:
    """The default of a key in this broker's release; None: it is not known."""
    known = known_settings().get(key)
    if known is None:
        return None
    if broker.is_ours:
        return known.default
    version = broker.version or ""
    if version.startswith("V5_"):
        return known.java5
    return known.java4 if version.startswith("V4_9_") else None
