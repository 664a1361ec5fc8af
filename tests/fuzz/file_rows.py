"""Rows: files that a start reads: settings, accounts, config/*.json, the store's small files."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from broker.acl.plain_acl_file import build_account
from broker.acl.plain_acl_text import parse_plain_acl
from broker.broker_startup import KEYS
from broker.filter.consumer_filter_manager import ConsumerFilterManager
from broker.json_config_manager import ConfigFileError, JsonConfigManager
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.settings.startup_options import StartupOptions
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.system_topics import SystemTopics
from broker.topic.topic_config_manager import TopicConfigManager
from conf.config_loader import load_settings
from conf.credentials import find_credentials
from conf.errors import ConfigError
from conf.settings_file import read_settings_file
from namesrv.kv_config_manager import KVConfigError, KVConfigManager
from store.clean_exit import read_clean_exit
from store.errors import StoreError
from store.flush_failure import read_flush_failure
from store.log_fences import load_fences
from store.queue_states import deleted_path, load_queue_states
from store.resync_request import find_request
from store.retention_clock import RetentionClock
from store.store_checkpoint import StoreCheckpoint
from tests.broker.broker_fakes import CONFIG
from tests.fuzz.mutation import mutate_bytes, mutate_json
from tests.fuzz.target import Stateless, Target, World
from tests.support.manual_clock import ManualClock

_ROOT = Path(__file__).parents[2]
_GOLDEN = _ROOT / "tests" / "golden" / "store-G" / "master"
Read = Callable[[Path], object]


def _written(name: str, read: Read, refusals: tuple[type[Exception], ...]) -> Any:
    """A world that writes each input to a file and reads that."""

    def world(root: Path) -> World:
        path = root / name

        def run(data: bytes) -> None:
            path.write_bytes(data)
            read(path)

        return Stateless(run, refusals)

    return world


# -- settings --------------------------------------------------------------------------------------


def _read_settings(path: Path) -> None:
    """Good settings are understood by every process that gets them."""
    loaded = load_settings(KEYS, file=read_settings_file(path))
    StartupOptions.from_settings(loaded.values)


def _files(*patterns: str) -> Sequence[bytes]:
    return [path.read_bytes() for pattern in patterns for path in sorted(_ROOT.glob(pattern))]


@functools.cache
def _keys() -> Sequence[bytes]:
    return [key.encode() for key in sorted(KEYS.known_keys())]


# -- accounts --------------------------------------------------------------------------------------


def _read_accounts(path: Path) -> None:
    """What is read is written as text that says the same."""
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        text = path.read_bytes().decode(errors="replace")
    found = parse_plain_acl(text, "plain_acl.yml")
    again = parse_plain_acl(found.dump(), "again")
    assert [a.access_key for a in again.accounts] == [a.access_key for a in found.accounts]
    for account in found.accounts:
        build_account(account)
    (path.parent / "tools.yml").write_bytes(path.read_bytes())
    find_credentials(path.parent)


_ACCOUNTS = b"""globalWhiteRemoteAddresses: [10.10.103.*, 192.168.0.1-50, '*.*']
accounts:
- accessKey: RocketMQ
  secretKey: '12345678'
  whiteRemoteAddress: 192.168.{1,2}.*
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [topicA=DENY, "topicB=PUB|SUB"]
  groupPerms: [groupA=DENY, groupB=SUB]
dataVersion:
- {counter: 1, timestamp: 1700000000000, stateVersion: 0}
"""


# -- config/*.json ---------------------------------------------------------------------------------


def _manager(number: int, path: Path) -> JsonConfigManager:
    clock = ManualClock()
    makers: tuple[Callable[[], JsonConfigManager], ...] = (
        lambda: TopicConfigManager(path, CONFIG, clock, SystemTopics()),
        lambda: SubscriptionGroupManager(path, CONFIG, clock),
        lambda: ConsumerOffsetManager(path),
        lambda: ScheduleOffsetManager(path),
        lambda: ConsumerFilterManager(path, CONFIG, clock),
    )
    return makers[number % len(makers)]()


class _Tables:
    """The first byte chooses the table, the others are its file."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def run(self, data: bytes) -> None:
        """A table that could be read is written, and read again the same."""
        number = data[0] % 6 if data else 0
        path = self._root / "table.json"
        path.write_bytes(data[1:])
        try:
            if number == 5:
                KVConfigManager(path).load()
                return
            manager = _manager(number, path)
            manager.load()
        except (ConfigFileError, KVConfigError):
            return
        text = manager.encode()
        manager.mark_changed()
        assert manager.save_if_changed()
        again = _manager(number, path)
        again.load()
        assert again.encode() == text
        path.with_name("table.json.bak").unlink(missing_ok=True)

    def check(self) -> None:
        """It keeps nothing."""

    def close(self) -> None:
        """It holds nothing."""


@functools.cache
def _table_seeds() -> Sequence[bytes]:
    names = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
    golden = [(_GOLDEN / "config" / name).read_bytes() for name in names]
    kv = b'{"configTable":{"ORDER_TOPIC_CONFIG":{"t":"a:1"}}}'
    filters = (
        b'{"filterDataByTopic":{"T":{"topic":"T","filterData":{"G":{"consumerGroup":"G",'
        b'"topic":"T","expression":"a > 1","expressionType":"SQL92","bornTime":1,"deadTime":0,'
        b'"clientVersion":1,"bloomFilterData":{"bitPos":[1,2,3],"bitNum":100}}}}}}'
    )
    return [bytes((n,)) + text[:6000] for n, text in enumerate((*golden, filters, kv))]


def _mutate_behind_first(rng: random.Random, data: bytes, tokens: Sequence[bytes]) -> bytes:
    if not data or rng.random() < 0.02:
        return mutate_bytes(rng, data, tokens)
    return data[:1] + mutate_json(rng, data[1:], tokens)


# -- the store's small files -----------------------------------------------------------------------


def _read_queue_states(path: Path) -> None:
    load_queue_states(path)
    deleted = deleted_path(path)
    deleted.write_bytes(path.read_bytes())
    path.write_bytes(b'{"format":1,"queues":{}}')
    load_queue_states(path)
    deleted.unlink()


_SMALL: Sequence[tuple[str, Read]] = (
    ("commitlog-fences.json", load_fences),
    ("clean.exit", read_clean_exit),
    ("fsync-failed.json", read_flush_failure),
    ("resync.json", lambda path: find_request(path.parent)),
    ("retention.json", lambda path: RetentionClock(ManualClock(), path)),
    ("queues.exit", _read_queue_states),
    ("checkpoint", StoreCheckpoint.load),
)
_SMALL_SEEDS = (
    b'{"fences":[{"start":4096,"end":8192,"reason":"r","noted_at":"t","digest":"0"}]}',
    b'{"max_phy_offset":1,"min_phy_offset":0,"boot":"b","tail_crc":1,"queue_count":1}',
    b'{"flushed_offset":4096,"failures":1,"error":"e","time":"t"}',
    b'{"action":"truncate","offset":5,"reason":"r","backup":"backup-20260101T000000Z-00000000",'
    b'"requested_at":"t"}',
    b'{"time_ms":1700000000000,"boot":"b","monotonic_ms":5}',
    b'{"format":1,"min_phy_offset":0,"queues":{"T":{"0":{"max_offset":1}}}}',
    bytes(4096),
)


class _SmallFiles:
    """The first byte chooses the file, the others are what it holds."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def run(self, data: bytes) -> None:
        """Read, refused, or not used; never worse."""
        name, read = _SMALL[data[0] % len(_SMALL)] if data else _SMALL[0]
        path = self._root / name
        path.write_bytes(data[1:])
        try:
            read(path)
        except StoreError:
            return
        finally:
            path.unlink(missing_ok=True)

    def check(self) -> None:
        """It keeps nothing."""

    def close(self) -> None:
        """It holds nothing."""


ROWS = (
    Target(
        name="properties",
        what="a settings file of Java properties, checked as at a start",
        world=_written("broker.conf", _read_settings, (ConfigError,)),
        seeds=lambda: [*_files("conf/*.conf", "conf/*/*.properties"), b"a=\\u0041\n", b"=x", b"\\"],
        rooms=("conf", "broker"),
        tokens=_keys,
    ),
    Target(
        name="yaml",
        what="a settings file of YAML",
        world=_written("broker.yaml", _read_settings, (ConfigError,)),
        seeds=lambda: [*_files("conf/broker.yaml"), b"a: &x 1\nb: *x\n", b"? [1]\n: 2", b"- a"],
        rooms=("conf", "broker"),
        tokens=_keys,
    ),
    Target(
        name="plain-acl",
        what="plain_acl.yml and tools.yml",
        world=_written("plain_acl.yml", _read_accounts, (ConfigError,)),
        seeds=lambda: [*_files("conf/plain_acl.yml"), _ACCOUNTS, b"", b"accounts: 1"],
        rooms=("conf", "broker"),
        tokens=lambda: [
            b"PUB|SUB",
            b"DENY",
            b"ANY",
            b"accounts",
            b"{1,2}",
            b"1-50",
            b"*.*",
            b"::1",
        ],
    ),
    Target(
        name="config-tables",
        what="config/*.json of a broker and kvConfig.json of a name server",
        world=_Tables,
        seeds=_table_seeds,
        rooms=("broker", "namesrv", "remoting"),
        mutate=_mutate_behind_first,
        largest=6000,
    ),
    Target(
        name="store-files",
        what="fences, clean exit, failed flush, resync, retention clock, queue states, checkpoint",
        world=_SmallFiles,
        seeds=lambda: [bytes((n,)) + text for n, text in enumerate(_SMALL_SEEDS)],
        rooms=("store",),
        mutate=_mutate_behind_first,
        largest=6000,
    ),
)
