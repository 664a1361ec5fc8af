"""Settings of stores that are not ours stop a start with the sentence that names key and way in."""

from __future__ import annotations

import pytest

from broker.broker_startup import KEYS
from conf.config_loader import load_settings
from conf.errors import ConfigError
from tests.conf.test_config_loader import at


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("storeType", "defaultRocksDB"),
        ("enableDLegerCommitLog", "true"),
        ("configManagerVersion", "v2"),
        ("popConsumerKVServiceEnable", "true"),
    ],
)
def test_a_store_of_another_kind_names_the_way_in(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=rf"x\.conf:1: {key} = {value}: .*bin/mqadopt"):
        load_settings(KEYS, file=[at(1, key, value)])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("storeType", "default"),
        ("enableDLegerCommitLog", "false"),
        ("configManagerVersion", "v1"),
        ("popConsumerKVServiceEnable", "false"),
    ],
)
def test_their_defaults_are_accepted(key: str, value: str) -> None:
    assert load_settings(KEYS, file=[at(1, key, value)]).values == {}
