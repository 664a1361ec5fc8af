"""ControllerNames: the addresses behind the names of the controllers.

A name is looked up by a task of the scheduled executor, never by who sends heartbeats: a resolver
that hangs for one controller's name would keep them from all others, and the broker would be taken
for dead. A look-up that fails leaves what was known, and is tried again (P30). Numeric addresses
need none.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from conf.ip_addresses import addresses_of, parse_ip

log = logging.getLogger(__name__)

LOOK_UP_PERIOD_MS: Final = 5_000

Resolve = Callable[[str], Sequence[str]]
"""The addresses of a host. Raises OSError or UnicodeError."""


class ControllerNames:
    """Any thread asks; `look_up` is called by one. The table is replaced as a whole."""

    def __init__(
        self, names: Sequence[str], *, all_addresses: bool, resolve: Resolve = addresses_of
    ) -> None:
        """names: host:port. all_addresses: every address of a name is a controller
        (fetchControllerAddrByDnsLookup); else only the first that the resolver gives."""
        self._names: Final = tuple(names)
        self._all_addresses = all_addresses
        self._resolve = resolve
        self._known: dict[str, tuple[str, ...]] = {}
        self._named: str | None = None
        """A leader that is in no list, as named last. One only: whoever names another one each time
        would have all of them looked up, before those in the list."""
        self._failures: dict[str, str] = {}
        """Of the last look-up; the same one is not logged as an error again."""

    def known(self) -> tuple[str, ...]:
        """ "address:port" of every controller that can be reached by now."""
        found = [address for name in self._names for address in self._addresses(name)]
        return tuple(dict.fromkeys(found))

    def find(self, name: str) -> str | None:
        """ "address:port" of a controller that another one has named. None: not looked up yet; it
        is, the next time."""
        found = self._addresses(name)
        if name not in self._names and not _is_numeric(name):
            self._named = name
        return found[0] if found else None

    def _addresses(self, name: str) -> tuple[str, ...]:
        return (name,) if _is_numeric(name) else self._known.get(name, ())

    def look_up(self) -> None:
        """Look all names up. Blocks as long as the resolver does."""
        wanted = [name for name in (*self._names, self._named) if name and not _is_numeric(name)]
        known = {name: self._known[name] for name in wanted if name in self._known}
        self._failures = {name: self._failures[name] for name in wanted if name in self._failures}
        for name in wanted:
            host, _, port = name.rpartition(":")
            try:
                found = [_joined(one, port) for one in self._resolve(host)]
            except (OSError, UnicodeError) as error:
                self._failed(name, str(error))
                continue
            if found:
                self._failures.pop(name, None)
                known[name] = tuple(found if self._all_addresses else found[:1])
        self._known = known

    def _failed(self, name: str, error: str) -> None:
        level = logging.ERROR if self._failures.get(name) != error else logging.DEBUG
        stay = ", ".join(self._known.get(name, ())) or "none"
        log.log(level, "controller %s: %s; addresses that stay: %s", name, error, stay)
        self._failures[name] = error


def _is_numeric(name: str) -> bool:
    return parse_ip(name.rpartition(":")[0]) is not None


def _joined(address: str, port: str) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
