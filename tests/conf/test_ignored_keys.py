"""Every key of RocketMQ (4.9.8, 5.3.3, 5.5) is declared, an alias, or on the list; never two."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from broker import broker_startup
from broker.container import container_startup
from conf.config_fields import field_specs
from conf.config_loader import KeySpace, build, describe
from conf.ignored_keys import (
    ALIASES,
    IGNORED_BROKER_KEYS,
    IGNORED_CONTAINER_KEYS,
    IGNORED_NAMESRV_KEYS,
    REFUSED,
)
from controller import controller_startup
from namesrv import namesrv_startup


def _original_keys() -> dict[str, set[str]]:
    parser = configparser.ConfigParser(allow_no_value=True, delimiters=("\0",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(Path(__file__).with_name("original_keys.txt"), encoding="utf-8")
    return {name: set(" ".join(parser[name]).split()) for name in parser.sections()}


SPACES = {
    "broker": broker_startup.KEYS,
    "container": container_startup.KEYS,
    "namesrv": namesrv_startup.KEYS,
    "controller": controller_startup.KEYS,
}


@pytest.mark.parametrize(("section", "keys"), _original_keys().items(), ids=list(_original_keys()))
def test_every_original_key_is_known(section: str, keys: set[str]) -> None:
    assert len(keys) > 10
    assert keys - SPACES[section.split()[0]].known_keys() == set()


@pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))
def test_no_declared_key_is_on_the_list(space: KeySpace) -> None:
    declared = {spec.key for cls in space.classes for spec in field_specs(cls)}
    assert declared & space.ignored == set()


def test_aliases_lead_to_declared_keys_and_refusals_to_ignored_ones() -> None:
    declared = {spec.key for cls in broker_startup.KEYS.classes for spec in field_specs(cls)}
    assert set(ALIASES.values()) <= declared
    ignored = IGNORED_BROKER_KEYS | IGNORED_NAMESRV_KEYS | IGNORED_CONTAINER_KEYS
    assert set(REFUSED) <= ignored


@pytest.mark.parametrize("space", SPACES.values(), ids=list(SPACES))
def test_fields_are_named_after_their_keys_and_defaults_fit(space: KeySpace) -> None:
    for cls in space.classes:
        defaults = cls()
        for spec in field_specs(cls):
            key = spec.key.replace(".", "_")
            snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()
            assert spec.name.replace("_", "") == snake.replace("_", ""), spec.key
            assert spec.doc
        assert build(cls, describe(defaults)) == defaults
