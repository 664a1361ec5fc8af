"""broker.settings.changeable_keys: what may change while the broker runs, and nothing else."""

from __future__ import annotations

import pytest

from broker.settings.broker_config import BrokerConfig
from broker.settings.changeable_keys import CHANGEABLE, RETENTION_KEYS
from conf.config_fields import Applies, FieldSpec, field_specs
from conf.ignored_keys import ALIASES
from store.message_store_config import MessageStoreConfig
from tests.support.every_row import every_row

SPECS = {spec.key: spec for cls in (BrokerConfig, MessageStoreConfig) for spec in field_specs(cls)}


@every_row("key", CHANGEABLE)
def test_a_changeable_key_is_a_number_or_a_choice(key: str) -> None:
    """Never a path, an address, a name or anything that is executed."""
    spec: FieldSpec = SPECS[key]
    assert spec.kind is not str or key == "deleteWhen"
    words = ("path", "home", "addr", "dir", "listen", "file", "class", "black", "ip1", "ip2")
    named = key.lower().replace("filereserved", "").replace("filesinterval", "")
    for harmless in ("deletefilebatch", "cleanfile", "indexfile"):
        named = named.replace(harmless, "")
    assert not any(word in named for word in words)


@pytest.mark.parametrize(
    "key",
    [
        "rocketmqHome",
        "namesrvAddr",
        "brokerIP1",
        "brokerId",
        "brokerName",
        "storePathRootDir",
        "storePathCommitLog",
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "messageDelayLevel",
        "configBlackList",
        "listenPort",
        "adminAllowedAddresses",
        "aclEnable",
        "logDir",
    ],
)
def test_these_never(key: str) -> None:
    assert key not in CHANGEABLE


def test_no_key_has_another_spelling() -> None:
    """A file may hold the other spelling: an edit would add a contradiction."""
    assert not set(ALIASES.values()) & CHANGEABLE.keys()


def test_what_the_store_holds_applies_now() -> None:
    assert {CHANGEABLE[key] for key in RETENTION_KEYS} == {Applies.NOW}
