"""KVConfigManager: namespaces of key-value pairs, stored in kvConfig.json (Java: KVConfigManager).

Readers use the current table, which is immutable once published, without a lock: any thread.
Writers (one lock) build the next table, write it to disk, and only then publish it: an acknowledged
change is on disk, and one that could not be written is never served. The file has fastjson's pretty
format, so that a Java name server can read it. Knows no request.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from conf.atomic_file import write_atomic
from remoting.body.kv_table import KVConfigSerializeWrapper
from remoting.remoting_serializable import loads_lenient

log = logging.getLogger(__name__)

NAMESPACE_ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""topic to `broker:queues;broker:queues`: the topics that are ordered across all brokers."""

_Table = dict[str, dict[str, str]]


class KVConfigError(Exception):
    """kvConfig.json is unusable; the message names the file and the way out."""


class KVConfigManager:
    """The table and its file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._write_lock = threading.Lock()
        self._table: _Table = {}

    def load(self) -> None:
        """Read the file; a missing file means an empty table. Raises KVConfigError."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise KVConfigError(f"{self._path}: cannot read the file: {error.strerror}") from error
        if data.strip():
            self._table = _parse(self._path, data)
        log.info("%s: %s namespaces loaded", self._path, len(self._table))

    def get_kv_config(self, namespace: str, key: str) -> str | None:
        """The value, or None."""
        return self._table.get(namespace, {}).get(key)

    def find_kv_list_by_namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All pairs of a namespace (do not modify the result); None for an unknown namespace."""
        return self._table.get(namespace)

    def put_kv_config(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises OSError, and changes nothing, if the file cannot be written."""
        with self._write_lock:
            old = self._table.get(namespace, {})
            self._publish({**self._table, namespace: {**old, key: value}})
        log.info("kv %s/%s: %r, was %r", namespace, key, value, old.get(key))

    def delete_kv_config(self, namespace: str, key: str) -> None:
        """Remove a key; the namespace remains, as in Java. Raises OSError like `put_kv_config`."""
        with self._write_lock:
            old = self._table.get(namespace)
            if old is None or key not in old:
                return
            rest = {name: value for name, value in old.items() if name != key}
            self._publish({**self._table, namespace: rest})
        log.info("kv %s/%s: deleted, was %r", namespace, key, old[key])

    def _publish(self, table: _Table) -> None:
        data = KVConfigSerializeWrapper(config_table=table).to_pretty_json_bytes()
        write_atomic(self._path, data, backup=True)
        self._table = table


def _parse(path: Path, data: bytes) -> _Table:
    try:
        # Not from_json_bytes, which repairs damaged text: the repair would be written back.
        return KVConfigSerializeWrapper.from_json(loads_lenient(data)).config_table
    except ValueError as error:
        way_out = f"repair it, replace it with {path.name}.bak, or remove it"
        raise KVConfigError(f"{path}: not a valid KV file ({error}); {way_out}") from error
