"""Writes docs/compatibility.md: our route tables beside the facts about RocketMQ's releases.

`.venv/bin/python -m tests.broker.compatibility_document` writes it anew; the test of it compares
the whole text, and says what is wrong with the facts first (`faults`).
"""

from __future__ import annotations

import ast
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker import broker_startup
from conf import ignored_keys
from conf.config_fields import field_specs
from conf.config_loader import KeySpace
from controller import controller_startup
from namesrv import namesrv_startup
from namesrv.config_manager import ConfigManager
from namesrv.default_request_processor import DefaultRequestProcessor
from namesrv.kv_config_manager import KVConfigManager
from namesrv.namesrv_config import NamesrvConfig
from namesrv.request_guard import OPERATOR_CODES
from namesrv.route_info_manager import RouteInfoManager
from remoting.request_code import RequestCode
from tests.broker import compatibility_bodies
from tests.broker.compatibility_facts import (
    BROKER_498,
    BROKER_533,
    BROKER_550,
    BROKER_551,
    DEFINED_498,
    DEFINED_533,
    DEFINED_550,
    DEFINED_551,
    GAPS_498,
    GAPS_533,
    GAPS_550,
    NAMESRV_498,
    NAMESRV_533,
    NAMESRV_550,
    NOT_ON_VIP,
    NOTES,
    OURS,
    TO_CLIENTS_498,
    TO_CLIENTS_533,
    TO_CLIENTS_550,
    UNUSED,
    Gap,
)
from tests.broker.route_world import built_controller
from tests.broker.settings_document import ignored_lists
from tools.command_table import COMMANDS
from tools.command_table import OURS as OUR_COMMANDS

ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = ROOT / "docs" / "compatibility.md"
COMMAND: Final = ".venv/bin/python -m tests.broker.compatibility_document"
KEYS_FILE: Final = ROOT / "tests" / "conf" / "original_keys.txt"


@dataclass(frozen=True, slots=True)
class Served:
    """What ours answers and asks, from the tables that it serves by."""

    broker: frozenset[int]
    vip: frozenset[int]
    namesrv: frozenset[int]
    to_clients: frozenset[int]


def served(root: Path) -> Served:
    """`root`: an empty directory."""
    with built_controller(root) as controller:
        routes = controller._routes
        return Served(
            broker=frozenset(map(int, routes.main)),
            vip=frozenset(map(int, routes.vip)),
            namesrv=_namesrv_codes(root),
            to_clients=frozenset(asked_by_sources(sorted((ROOT / "broker").rglob("*.py"))))
            & TO_CLIENTS_550,
        )


def _namesrv_codes(root: Path) -> frozenset[int]:
    kv, settings = KVConfigManager(root / "kv.json"), ConfigManager(NamesrvConfig())
    processor = DefaultRequestProcessor(RouteInfoManager(), kv, settings, lambda: 0)
    return frozenset(map(int, processor.codes))


def asked_by_sources(paths: Iterable[Path]) -> Iterator[int]:
    """Codes that the sources name, other than as the key of a table."""
    for path in paths:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        keys = {
            id(key) for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys
        }
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in ("RequestCode", "Code")
                and id(node) not in keys
            ):
                yield int(RequestCode[node.attr])


# -- what is wrong with the facts ------------------------------------------------------------------


def faults(ours: Served) -> list[str]:
    """Gaps without a reason, reasons without a gap, codes that the facts do not know."""
    found = [
        *_faults_of_gaps("4.9.8", BROKER_498 - ours.broker | NAMESRV_498 - ours.namesrv, GAPS_498),
        *_faults_of_gaps(
            "5.3.3",
            (BROKER_533 - BROKER_498 - ours.broker) | (NAMESRV_533 - NAMESRV_498 - ours.namesrv),
            GAPS_533,
        ),
        *_faults_of_gaps(
            "5.5",
            (BROKER_551 - BROKER_533 - ours.broker)
            | (NAMESRV_550 - NAMESRV_533 - ours.namesrv)
            | (TO_CLIENTS_550 - TO_CLIENTS_533 - ours.to_clients),
            GAPS_550,
        ),
    ]
    known = DEFINED_498 | DEFINED_551 | OURS
    if missing := {int(code) for code in RequestCode} ^ known:
        found.append(f"defined in only one of RequestCode and the facts: {_listed(missing)}")
    if extra := (ours.broker | ours.namesrv) - known:
        found.append(f"answered by ours, but not in the facts: {_listed(extra)}")
    if extra := (ours.broker | ours.namesrv) - BROKER_551 - BROKER_498 - NAMESRV_550 - OURS:
        found.append(f"answered by ours, by no release of RocketMQ: {_listed(extra)}")
    if wrong := (ours.broker - ours.vip) ^ NOT_ON_VIP:
        found.append(f"not on the VIP port, in only one of routes and facts: {_listed(wrong)}")
    if missing := (TO_CLIENTS_498 | TO_CLIENTS_533) - ours.to_clients:
        found.append(f"asked of clients by RocketMQ only: {_listed(missing)}")
    used = BROKER_498 | BROKER_551 | NAMESRV_498 | NAMESRV_550 | TO_CLIENTS_498 | TO_CLIENTS_550
    unused = {code for codes, _ in UNUSED for code in codes}
    if wrong := unused ^ ((DEFINED_498 | DEFINED_551) - used):
        found.append(f"answered by no program, or not listed as such: {_listed(wrong)}")
    if wrong := NOTES.keys() - ours.broker - ours.namesrv:
        found.append(f"notes on what ours does not answer: {_listed(wrong)}")
    return found


def _faults_of_gaps(version: str, gaps: Set[int], reasons: Sequence[Gap]) -> Iterator[str]:
    explained = [code for gap in reasons for code in gap.codes]
    if unexplained := gaps - set(explained):
        yield f"answered by {version}, not by ours, and without a reason: {_listed(unexplained)}"
    if needless := set(explained) - gaps:
        yield f"a reason is given, but there is no gap at {version}: {_listed(needless)}"
    if len(explained) > len(set(explained)):
        yield f"two reasons for one gap at {version}"


def _listed(codes: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(codes)))


# -- the document ----------------------------------------------------------------------------------


def document(ours: Served) -> str:
    """The whole text of docs/compatibility.md."""
    parts = (
        _head(),
        _broker(ours),
        _gaps(),
        _namesrv(ours),
        _to_clients(ours),
        _unused(),
        compatibility_bodies.section(),
        _settings(),
        _CONTROLLER_MODE,
        _commands(),
    )
    return "\n\n".join(parts) + "\n"


def _head() -> str:
    return f"""\
# What RocketMQ 4.9.8, 5.3.3 and 5.5.0 answer, and what ours does

Made from our tables of routes and settings. To regenerate it (a test compares):

    {COMMAND}

The columns of 4.9.8, 5.3.3 and 5.5.0 are read off their sources: what their brokers and name
servers dispatch. Codes and header fields of 5.5.0 are what its classes say
(`tests/golden/protocol-5.5.0.json`); a test compares ours. "yes" says that there is an answer, not
that it is the same byte for byte: what differs on purpose is in [decisions](decisions/README.md),
[transactions.md](transactions.md), [filters.md](filters.md), [access.md](access.md) and
[replication.md](replication.md)."""


def _broker(ours: Served) -> str:
    codes = sorted(ours.broker | BROKER_498 | BROKER_551)
    return f"""\
## Broker

{_shares("broker", ours.broker, BROKER_498, BROKER_533, BROKER_550)}

An unknown code is answered as these releases do: code 3 (REQUEST_CODE_NOT_SUPPORTED), remark
` request type N not supported`, in the header format of the request, on both ports; a oneway one
is dropped, and the connection stays. With `aclEnable=true` that needs no account here.
{_listed(NOT_ON_VIP)} are not answered on the VIP port (`listenPort` - 2), as there. Who may ask
for what: [access.md](access.md).

{_table(codes, ours.broker, BROKER_498, BROKER_533, BROKER_550)}"""


def _shares(
    server: str, ours: Set[int], at_498: Set[int], at_533: Set[int], at_550: Set[int]
) -> str:
    return (
        f"Of the {len(at_498)} codes that a 4.9.8 {server} answers, ours answers "
        f"{len(at_498 & ours)}; of the {len(at_533)} of 5.3.3, {len(at_533 & ours)}; of the "
        f"{len(at_550)} of 5.5.0, {len(at_550 & ours)}."
    )


def _gaps() -> str:
    gaps = GAPS_498 + GAPS_533 + GAPS_550
    rows = [f"| {gap.name} | {ranges(gap.codes)} | {gap.reason} |" for gap in gaps]
    if not rows:
        return (
            "## Gaps\n\n"
            "None: each of these codes is answered. What an answer leaves out or refuses stands in "
            "the notes above and in\n[decisions](decisions/README.md); codes of modes that are not "
            "available (RocksDB) get the answer of a\n5.3.3 broker that has them off."
        )
    tables = {"4.9.8": GAPS_498, "5.3.3": GAPS_533}
    full = [version for version, found in tables.items() if not found]
    head = f"None at {' and '.join(full)}." if full else "At every release:"
    table = ("| gap | codes | why, and what happens |", "|---|---|---|", *rows)
    return "\n".join(("## Gaps, and what a peer makes of code 3", "", head, "", *table))


def _namesrv(ours: Served) -> str:
    codes = sorted(ours.namesrv | NAMESRV_498 | NAMESRV_550)
    return f"""\
## Name server

{_shares("name server", ours.namesrv, NAMESRV_498, NAMESRV_533, NAMESRV_550)}

An unknown code is answered with 3, as 5.x does; 4.9.8 leaves it unanswered, and its peer waits
for nothing. {_listed(OPERATOR_CODES)} are taken from operators' addresses only
([access.md](access.md)).

{_table(codes, ours.namesrv, NAMESRV_498, NAMESRV_533, NAMESRV_550)}"""


def _to_clients(ours: Served) -> str:
    codes = sorted(TO_CLIENTS_550)
    return f"""\
## To clients

What a broker asks of the clients that are connected to it.

{_table(codes, ours.to_clients, TO_CLIENTS_498, TO_CLIENTS_533, TO_CLIENTS_550, notes={})}"""


def _unused() -> str:
    lines = [
        "## Codes that neither a broker nor a name server answers",
        "",
        "| code | name | 4.9.8 | 5.3.3 | 5.5.0 | |",
        "|---|---|---|---|---|---|",
    ]
    for codes, why in UNUSED:
        lines += (
            f"| {code} | {RequestCode(code).name} | {_defined(code in DEFINED_498)} | "
            f"{_defined(code in DEFINED_533)} | {_defined(code in DEFINED_550)} | {why} |"
            for code in sorted(codes)
        )
    return "\n".join(lines)


def _defined(is_defined: bool) -> str:
    return "defined" if is_defined else "–"


def _table(
    codes: Iterable[int],
    ours: Set[int],
    at_498: Set[int],
    at_533: Set[int],
    at_550: Set[int],
    notes: Mapping[int, str] = NOTES,
) -> str:
    gaps = {code: gap.name for gap in GAPS_498 + GAPS_533 + GAPS_550 for code in gap.codes}
    lines = ["| code | name | ours | 4.9.8 | 5.3.3 | 5.5.0 | |", "|---|---|---|---|---|---|---|"]
    for code in codes:
        marks = " | ".join(
            "yes" if code in table else "–" for table in (ours, at_498, at_533, at_550)
        )
        word = notes.get(code, "") if code in ours else f"gap: {gaps.get(code, 'unexplained')}"
        lines.append(f"| {code} | {RequestCode(code).name} | {marks} | {word} |".replace("  ", " "))
    return "\n".join(lines)


def ranges(codes: Iterable[int]) -> str:
    """1, 2, 3, 7 as "1 to 3, 7"."""
    runs: list[list[int]] = []
    for code in sorted(codes):
        if runs and code == runs[-1][-1] + 1:
            runs[-1].append(code)
        else:
            runs.append([code])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else _listed(run) for run in runs)


# -- settings and commands -------------------------------------------------------------------------


def original_keys(section: str) -> frozenset[str]:
    """The keys of one section of tests/conf/original_keys.txt."""
    text = KEYS_FILE.read_text(encoding="utf-8")
    (keys,) = re.findall(rf"^\[{re.escape(section)}\]\n([^\[]*)", text, re.MULTILINE)
    return frozenset(keys.split())


def _honoured(space: KeySpace) -> frozenset[str]:
    declared = {spec.key for cls in space.classes for spec in field_specs(cls)}
    return frozenset(
        declared | {alias for alias, key in ignored_keys.ALIASES.items() if key in declared}
    )


def _settings() -> str:
    counts = [
        ("broker 4.9.8", broker_startup.KEYS),
        ("broker 5.3.3", broker_startup.KEYS),
        ("namesrv 4.9.8 and 5.3.3", namesrv_startup.KEYS),
        ("controller 5.3.3", controller_startup.KEYS),
    ]
    lines = [
        "## Settings",
        "",
        "A settings file of RocketMQ works unchanged. Every key is known: honoured, or without",
        "effect, which a start says in one warning, or refused where ignoring it would break a",
        "promise. An unknown key stops the start and names the nearest one. What can be changed",
        "while a broker runs: [settings.md](settings.md). Keys without effect and why:",
        "`conf/ignored_keys.py`.",
        "",
        "| keys of | all | honoured | without effect |",
        "|---|---|---|---|",
    ]
    for section, space in counts:
        keys = original_keys(section)
        honoured = len(keys & _honoured(space))
        lines.append(f"| {section} | {len(keys)} | {honoured} | {len(keys) - honoured} |")
    keys = original_keys("broker 4.9.8")
    groups = ignored_keys.IGNORED_BROKER_GROUPS.items()
    hits = ((reason, sorted(keys & group)) for reason, group in groups if keys & group)
    lines += ["", "Without effect, of a 4.9.8 broker's:", "", ignored_lists(hits)]
    refused = sorted(ignored_keys.REFUSED.keys() & keys)
    lines += ["", "| of these refused | unless | because |", "|---|---|---|"]
    for key in refused:
        refusal = ignored_keys.REFUSED[key]
        harmless = ", ".join(sorted(refusal.harmless)) or "empty"
        lines.append(f"| {key} | {harmless} | {refusal.reason.partition(';')[0]} |")
    return "\n".join(lines)


_CONTROLLER_MODE: Final = """\
## Controller mode

Yes ([failover.md](failover.md)): a broker is a member under RocketMQ's controllers (5.3.3, of the
DLedger and the jRaft kind, one node or three) and under ours; a group mixes Java's brokers and
ours. `tests/interop/test_mixed_groups.py` runs the mixes. What remains different:

- **Member.** A store without a list of epochs does not start (5.3.3: joins, and nobody notices
  where logs differ). Who does not lead lets nobody follow (5.3.3's HA port stays open: P38 in
  failover.md). A 1008 moves no role, it makes the member ask. A container's brokers are no members.
- **Controller.** An id that was not offered is refused (5.3.3 takes it: P16), only ids that were
  given are elected (P13), a set that is in force is answered (P18), cleaning honours ids (P34), a
  silent master is replaced (jRaft of 5.3.3: never, P10). Several controllers share an etcd;
  RocketMQ's raft is not spoken, so its controllers and ours do not mix. 1010 names the settings
  that there are.
- **Epochs without a message.** A master's handshake names the epochs before the first one of its
  log as well, and its first heartbeat to a slave that ends where an epoch begins has the label of
  the one before: Java's slaves then neither connect for ever nor lose an epoch (P2; failover.md).
- **HA between Java and ours** has neither checksums nor proof of who speaks: those are between
  ours."""


def _commands() -> str:
    of_5x = len(COMMANDS.keys() - OUR_COMMANDS) - 56
    return f"""\
## Operators' commands

`bin/mqadmin` has the 56 commands of 4.9.8, and {of_5x} that came with 5.x
([mqadmin.md](mqadmin.md)), and {len(OUR_COMMANDS)} of ours.
RocketMQ's own mqadmin works against ours."""


def main() -> None:
    """Write the document, unless something is wrong with the facts."""
    with tempfile.TemporaryDirectory() as root:
        ours = served(Path(root))
    if found := faults(ours):
        raise SystemExit("tests/broker/compatibility_facts.py:\n" + "\n".join(found))
    DOCUMENT.write_text(document(ours), encoding="utf-8")
    print(f"written: {os.path.relpath(DOCUMENT)}")


if __name__ == "__main__":
    main()
