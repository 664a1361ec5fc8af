"""KVConfigManager: namespaces of key-value text, kept in kvConfig.json (Java: KVConfigManager).

Readers take the current table, which never changes once it is published, without a lock: any
thread. Writers (one lock) build the next table, put it on the disk, and only then publish it: what
was answered with success is on the disk, and what could not be written is not served. The file is
fastjson's pretty form, so that a Java name server can take it over. Knows no request.
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
"""topic -> `broker:queues;broker:queues`: which topics are ordered over all brokers."""

_Table = dict[str, dict[str, str]]


class KVConfigError(Exception):
    """kvConfig.json cannot be used; the message names the file and the way out."""


class KVConfigManager:
    """The table and its file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._write_lock = threading.Lock()
        self._table: _Table = {}

    def load(self) -> None:
        """Read the file; a missing one is an empty table. Raises KVConfigError."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise KVConfigError(f"{self._path}: cannot be read: {error.strerror}") from error
        if data.strip():
            self._table = _parse(self._path, data)
        log.info("%s: %s namespaces loaded", self._path, len(self._table))

    def get_kv_config(self, namespace: str, key: str) -> str | None:
        """The value, or None."""
        return self._table.get(namespace, {}).get(key)

    def find_kv_list_by_namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All keys of a namespace (do not change the result); None for an unknown namespace."""
        return self._table.get(namespace)

    def put_kv_config(self, namespace: str, key: str, value: str) -> None:
        """Set a value. Raises OSError when the file cannot be written; nothing changes then."""
        with self._write_lock:
            old = self._table.get(namespace, {})
            self._publish({**self._table, namespace: {**old, key: value}})
        log.info("kv %s/%s: %r, was %r", namespace, key, value, old.get(key))

    def delete_kv_config(self, namespace: str, key: str) -> None:
        """Remove a key; the namespace stays, as in Java. Raises OSError as `put_kv_config`."""
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
        # Not from_json_bytes: what is read into a file's damaged bytes would be saved again.
        return KVConfigSerializeWrapper.from_json(loads_lenient(data)).config_table
    except ValueError as error:
        way_out = f"repair it, or put {path.name}.bak in its place, or remove it"
        raise KVConfigError(f"{path}: cannot be used ({error}); {way_out}") from error
