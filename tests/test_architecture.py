"""The plan of the house, held: who imports whom, door plates, names, sizes, settings, README."""

from __future__ import annotations

import ast
import configparser
import functools
import importlib.metadata
import os
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from setuptools import find_packages

from broker import broker_startup
from broker.container import container_startup
from conf.config_fields import field_specs
from controller import controller_startup
from namesrv import namesrv_startup
from tests.support.every_row import every_row
from tests.support.garbage import not_searched

ROOT = Path(__file__).resolve().parents[1]
MAY_IMPORT: dict[str, set[str]] = {
    "conf": set(),
    "ipc": set(),
    "remoting": set(),
    "store": {"ipc"},
    "spark": set(),
    "controller": {"conf", "remoting"},
    "ha": {"ipc", "store"},
    "namesrv": {"conf", "remoting"},
    "broker": {"conf", "ipc", "remoting", "store", "ha"},
    "tools": {"conf", "remoting"},
    "console": {"conf", "remoting", "tools"},
    "adopt": {"broker", "conf", "remoting", "store"},
}
"""The rooms and whom they may import (docs/ARCHITECTURE.md). A room may also import itself."""
WINGS: dict[str, set[str]] = {
    "settings": set(),
    "latency": {"settings"},
    "supervisor": set(),
    "topic": {"settings"},
    "offset": set(),
    "subscription": {"settings", "topic"},
    "filter": {"settings"},
    "longpolling": {"filter"},
    "coldctr": {"longpolling", "settings", "topic"},
    "out": {"settings", "topic"},
    "acl": {"out", "settings", "topic"},
    "auth": {"acl", "settings", "topic"},
    "append": {"latency", "topic"},
    "store_access": {"append", "longpolling"},
    "schedule": {"append", "out", "store_access", "topic"},
    "processor": {"acl", "append", "store_access", "topic"},
    "client": {
        "filter",
        "offset",
        "processor",
        "settings",
        "store_access",
        "subscription",
        "topic",
    },
    "timer": {"append", "out", "processor", "schedule", "topic"},
    "pop": {
        *("append", "filter", "offset", "out", "processor", "schedule", "settings"),
        *("store_access", "subscription", "timer", "topic"),
    },
    "failover": {"settings"},
    "slave": {
        *("offset", "out", "processor", "schedule", "settings", "store_access"),
        *("subscription", "topic"),
    },
    "metrics": {
        *("client", "offset", "settings", "slave", "store_access", "subscription", "supervisor"),
        "topic",
    },
    "transaction": {
        *("append", "client", "metrics", "offset", "out", "processor", "schedule"),
        *("store_access", "timer", "topic"),
    },
    "send": {
        *("append", "metrics", "processor", "settings", "store_access", "timer", "topic"),
        "transaction",
    },
    "lite": {
        *("metrics", "offset", "pop", "processor", "store_access", "subscription", "topic"),
    },
    "pull": {
        *("client", "coldctr", "filter", "longpolling", "metrics", "offset", "out"),
        *("processor", "settings", "store_access", "topic"),
    },
    "admin": {
        *("acl", "auth", "client", "coldctr", "filter", "metrics", "offset", "out", "processor"),
        *("schedule", "settings", "slave", "store_access", "subscription", "topic"),
    },
    "wiring": {
        *("acl", "admin", "append", "client", "coldctr", "filter", "latency", "lite"),
        *("longpolling", "metrics", "offset", "out", "pop", "processor", "pull", "schedule"),
        *("send", "settings", "slave", "store_access", "subscription", "timer", "topic"),
        "transaction",
    },
    "container": {"broker_startup", "settings", "supervisor"},
    "processes": {
        *("acl", "auth", "broker_controller", "container", "failover", "metrics", "out"),
        *("settings", "slave", "supervisor", "topic", "wiring"),
    },
}
"""The wings of `broker` and whom they may import (docs/ARCHITECTURE.md), lowest first. What lies at
the top of `broker` is above all wings, but for `json_config_manager`, which imports none."""
BELOW_ALL_WINGS = {"json_config_manager"}
MAX_TOP_MODULES = 5
SPARK_MAY_IMPORT: dict[str, set[str]] = {
    "config": set(),
    "dumps": set(),
    "evidence": {"config", "dumps"},
    "figures": {"config", "dumps"},
    "page": {"figures"},
    "prometheus_import": {"dumps"},
    "sources": {"dumps"},
    "job": {"config", "dumps", "evidence", "figures", "page"},
    "command": {
        *("config", "dumps", "evidence", "figures", "job", "page", "prometheus_import"),
    },
}
"""The packages of spark/ and whom they may import; all may import the modules at its top."""
SPARK_TOP = {"spark", "spark.__main__", "spark.reported_day", "spark.vocabulary"}
WITHOUT_SPARK = {"config", "dumps", "evidence", "figures", "page", "prometheus_import"}
"""Packages of spark/ that must not import PySpark."""
ALSO_MAY_IMPORT = {
    "broker.processes.namesrv": {"namesrv"},
    "namesrv.controller_in_namesrv": {"controller"},
    "remoting.tls_socket": {"ipc"},
}
"""The composition roots that run the name server inside the broker, and the controller inside the
name server; and the TLS state, which the HA port has, too."""
CHOOSES_AT_IMPORT = {"broker": {"os", "conf.compiled_modules"}}
"""The one package that does something when it is imported: see its docstring."""
OPEN_MODULES = {
    "conf.atomic_file": {"store", "ha"},
    "conf.config_fields": {"remoting", "store", "ha"},
    "conf.ip_addresses": {"remoting", "ha"},
}
"""Modules that import the standard library only, and the rooms to which they are open: those that
write small files, whose settings classes declare their fields, and that know peers by address."""
ONLY_IN = {
    "selectors2": "remoting.selector_seam",
    "pyspark": "spark",
    "rocksdict": "adopt",
    "prometheus_client": "remoting",
}
PACKAGES_MAY_IMPORT = {
    "spark.sources": {"conf", "remoting", "store", "tools"},
}
"""Packages that may import more than their room. The sources of Spark speak the protocol, read
records and ask as the operator's commands do; the report beside them stays without any of it."""
BANNED_NAMES = {"common", "utils", "util", "helpers", "misc"}
TESTED_MODULE_LINES = 150
"""A longer module has a test of its name, or its docstring names its tests."""
RUN_WHOLE_BROKERS = ("tests/faults/", "tests/interop/")
COMMANDS = "tools.commands."
MAX_MODULE_LINES = 600
USUAL_MODULE_LINES = 400
LIST_STEP = 20
LONG_MODULES = {
    "broker.failover.member": 560,
    "broker.out.broker_outer_api": 460,
    "broker.pop.pop_message_processor": 480,
    "broker.pop.pop_revive_service": 460,
    "broker.pull.pull_message_processor": 460,
    "broker.send.send_message_processor": 420,
    "broker.slave.promotion": 480,
    "broker.supervisor.supervisor": 440,
    "broker.topic.topic_config_manager": 540,
    "broker.transaction.end_transaction_processor": 440,
    "broker.wiring.replication": 440,
    "ha.ha_client": 420,
    "namesrv.route_info_manager": 500,
    "remoting.connection": 460,
    "remoting.remoting_client": 480,
    "remoting.remoting_serializable": 417,
    "spark.figures.replica_day": 460,
    "spark.prometheus_import.lines": 480,
    "store.commit_log": 500,
    "store.default_message_store": 480,
    "store.message_codec": 480,
    "store.record_arrays": 500,
    "store.store_opening": 500,
    "tools.chaos.chaos_run": 600,
}
"""Modules with more lines, and how many they may have: new ones are cut, and these only shrink."""
USUAL_METHODS = 20
MANY_METHODS = {
    "broker.client.consumer_manager.ConsumerManager": 21,
    "broker.failover.member.MemberCore": 28,
    "broker.filter.selector_parser._Builder": 21,
    "broker.metrics.hot_path_stats.HotPathStats": 24,
    "broker.offset.consumer_offset_manager.ConsumerOffsetManager": 29,
    "broker.out.broker_registration.BrokerRegistration": 23,
    "broker.pop.pop_buffer_merge_service.PopBufferMergeService": 29,
    "broker.pop.pop_message_processor.PopMessageProcessor": 22,
    "broker.pop.pop_revive_service.PopReviveService": 28,
    "broker.pop.pops.Pops": 26,
    "broker.pull.pull_message_processor.PullMessageProcessor": 21,
    "broker.send.send_message_processor.SendMessageProcessor": 22,
    "broker.supervisor.supervisor.Supervisor": 26,
    "broker.timer.timer_dequeue_service.TimerDequeueService": 25,
    "broker.topic.topic_config_manager.TopicConfigManager": 30,
    "broker.wiring.replication.Replication": 24,
    "controller.core.ControllerCore": 22,
    "ha.ha_client.HAClient": 26,
    "ha.master_link.MasterLink": 21,
    "ha.replica_registry.ReplicaRegistry": 25,
    "namesrv.default_request_processor.DefaultRequestProcessor": 27,
    "namesrv.route_info_manager.RouteInfoManager": 37,
    "remoting.connection.Connection": 27,
    "remoting.remoting_client.RemotingClient": 24,
    "remoting.selector_loop.SelectorLoop": 24,
    "store.batch_consume_queue.BatchConsumeQueue": 24,
    "store.batch_consume_queue_table.BatchConsumeQueueTable": 25,
    "store.commit_log.CommitLog": 23,
    "store.compaction.compaction_log.CompactionLog": 22,
    "store.compaction.compaction_store.CompactionStore": 25,
    "store.compaction.partition_log.PartitionLog": 24,
    "store.consume_queue_files.ConsumeQueueFiles": 23,
    "store.consume_queue_table.ConsumeQueueTable": 27,
    "store.default_message_store.DefaultMessageStore": 21,
    "store.index_file.IndexFile": 25,
    "store.mapped_file_queue.MappedFileQueue": 22,
    "store.timer.timer_message_store.TimerMessageStore": 26,
    "tools.admin_client.AdminClient": 23,
    "tools.chaos.chaos_run.ChaosRun": 42,
}
"""Classes with more methods: new ones are cut, and these only shrink."""
MAX_FUNCTION_LINES = 100
_NAMED = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
MAX_PARAMETERS = 8
COMMAND_DECORATORS = {"command", "change", "click.command"}
"""What makes a function of tools/ a command (tools/commands, tools/mqchaos.py)."""
MANY_PARAMETERS = {
    "conf.config_fields.setting": 9,
    "remoting.remoting_command.RemotingCommand.__init__": 9,
    "store.commit_log.CommitLog.put_fields": 10,
}
"""Functions with more parameters, and how many. What belongs together gets a name instead: this
list only gets shorter, and its numbers smaller. Some stay: `setting` declares the columns of a row,
RemotingCommand has the fields of Java's, and put_fields those of a record, spelt out for speed."""

PENDING_FIELDS: dict[str, set[str]] = {}
"""Settings that no code reads yet, by class. A name goes when its feature comes."""


@dataclass(frozen=True)
class Module:
    """One product module, parsed."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def room(self) -> str:
        return self.name.partition(".")[0]

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node, walked once for all tests."""
        return tuple(ast.walk(self.tree))

    def imports(self) -> Iterator[str]:
        """Every imported module, also inside functions and type-checking blocks."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield "." * node.level + (node.module or "")


@functools.cache
def modules() -> tuple[Module, ...]:
    found = []
    with not_searched():
        for room in MAY_IMPORT:
            for path in sorted((ROOT / room).rglob("*.py")):
                name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
                tree = ast.parse(path.read_text(encoding="utf-8"))
                found.append(Module(name.removesuffix(".__init__"), path, tree))
    return tuple(found)


def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_import_table() -> None:
    wrong = [
        f"{module.name} imports {imported}"
        for module in modules()
        for imported in module.imports()
        if (top := imported.partition(".")[0]) != module.room
        and top in (MAY_IMPORT.keys() | {"tests", "bin", "docs"})
        and top not in MAY_IMPORT[module.room] | ALSO_MAY_IMPORT.get(module.name, set())
        and top not in PACKAGES_MAY_IMPORT.get(".".join(module.name.split(".")[:2]), set())
        and module.room not in OPEN_MODULES.get(imported, set())
    ]
    assert wrong == []


def test_what_is_open_to_other_rooms_depends_on_nothing() -> None:
    found = [module for module in modules() if module.name in OPEN_MODULES]
    assert {module.name for module in found} == OPEN_MODULES.keys()
    tops = {imported.partition(".")[0] for module in found for imported in module.imports()}
    assert tops - sys.stdlib_module_names == set()


def _wing_imports() -> Iterator[tuple[Module, str, str]]:
    """(module, its wing, imported wing or top module) of imports within `broker`."""
    for module in modules():
        path = module.name.split(".")
        if module.room != "broker" or len(path) < 2 or path[1] not in WINGS:
            continue
        for imported in module.imports():
            parts = imported.split(".")
            if parts[0] == "broker" and parts[1:2] != [path[1]]:
                yield module, path[1], ".".join(parts[1:2])


def test_import_table_of_the_wings() -> None:
    wrong = [
        f"{module.name} imports broker.{imported}"
        for module, wing, imported in _wing_imports()
        if imported not in WINGS[wing] | BELOW_ALL_WINGS
    ]
    assert wrong == []


def test_no_two_wings_import_each_other() -> None:
    """The table is in order: a wing imports only what stands above it there."""
    names = list(WINGS)
    for name, imported in WINGS.items():
        assert imported & WINGS.keys() <= set(names[: names.index(name)]), name


def test_the_table_of_the_wings_is_exact() -> None:
    """An import that nothing needs any more leaves the table."""
    used: dict[str, set[str]] = {name: set() for name in WINGS}
    for _, wing, imported in _wing_imports():
        used[wing].add(imported)
    assert {name: WINGS[name] - found for name, found in used.items() if WINGS[name] - found} == {}


def test_every_module_of_broker_is_in_a_wing() -> None:
    top = {m.name for m in modules() if m.room == "broker" and m.path.parent.name == "broker"}
    wings = {m.name for m in modules() if m.room == "broker"} - top
    assert len(top) <= MAX_TOP_MODULES, sorted(top)
    assert {name.split(".")[1] for name in wings} == WINGS.keys()


def test_who_puts_into_the_log_beside_append() -> None:
    """The hot loops' entrances give no places in light queues: whoever calls them leaves the
    messages that need some to `append`."""
    calls = re.compile(r"\.(put_fields|put_sent_batch)\(")
    callers = {
        (module.name, name)
        for module in modules()
        for name in calls.findall(module.path.read_text(encoding="utf-8"))
    }
    assert callers == {
        ("broker.send.send_route", "put_fields"),
        ("broker.send.batch_send_route", "put_sent_batch"),
        ("store.commit_log", "put_fields"),
    }


def _spark_package(name: str) -> str:
    """The package of spark/ that a module is in; "" at its top."""
    return "" if name in SPARK_TOP else f"{name}.".split(".")[1]


def test_import_table_of_spark() -> None:
    wrong = []
    for module in modules():
        if module.room != "spark" or module.name in {"spark", "spark.__main__"}:
            continue
        own = _spark_package(module.name)
        allowed = {"", own, *SPARK_MAY_IMPORT.get(own, set())}
        wrong += [
            f"{module.name} imports {imported}"
            for imported in _imports_of_spark(module)
            if _spark_package(imported) not in allowed
        ]
    assert wrong == []


def _imports_of_spark(module: Module) -> Iterator[str]:
    for imported in module.imports():
        if imported.startswith("spark."):
            yield imported
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "spark":
            yield from (f"spark.{alias.name}" for alias in node.names)


def test_spark_has_one_place_within_the_report() -> None:
    wrong = [
        f"{module.name} imports {imported}"
        for module in modules()
        for imported in module.imports()
        if module.room == "spark"
        and imported.partition(".")[0] in {"pyspark", "py4j"}
        and _spark_package(module.name) in WITHOUT_SPARK
    ]
    assert wrong == []


def test_packages_of_spark() -> None:
    names = {module.name for module in modules() if module.room == "spark"}
    assert names >= SPARK_TOP
    assert {_spark_package(name) for name in names} - {""} == SPARK_MAY_IMPORT.keys()
    order = list(SPARK_MAY_IMPORT)
    for number, package in enumerate(order):
        assert SPARK_MAY_IMPORT[package] <= set(order[:number]), f"{package}: import circle"


def test_imports_are_absolute() -> None:
    assert [m.name for m in modules() if any(i.startswith(".") for i in m.imports())] == []


def test_some_libraries_have_one_place() -> None:
    wrong = [
        f"{module.name} imports {imported}"
        for module in modules()
        for imported in module.imports()
        if (place := ONLY_IN.get(imported.partition(".")[0]))
        and not f"{module.name}.".startswith(f"{place}.")
    ]
    assert wrong == []


def test_types_are_learnt_by_one_thread() -> None:
    """Two threads that are the first to decode a type end the process: shared_decoders.py."""
    wrong = [
        f"{module.name}, line {line}: {why}"
        for module in modules()
        if "msgspec" in module.imports() and module.name != "remoting.shared_decoders"
        for line, why in uses_that_learn(module.tree)
    ]
    assert wrong == []


def uses_that_learn(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Calls within functions that may be the first use of a type, and what to do instead."""
    known = {
        ast.unparse(target)
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call)
        for target in [node.target]
        if ast.unparse(node.value.func) == "learnt"
    }
    yield from uses_that_hide(tree)
    for inner in functions_of(tree):
        for node in ast.walk(inner):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            name = ast.unparse(node.func).removeprefix("msgspec.")
            given = [ast.unparse(each) for each in (*node.args, *(k.value for k in node.keywords))]
            if name in {f"{form}.Decoder" for form in FORMS} and given:
                yield node.lineno, "make the decoder at the import, or by decoder_of"
            if name in {f"{form}.decode" for form in FORMS} and (
                any(keyword.arg in (None, "type") for keyword in node.keywords)
            ):
                yield node.lineno, "decode by a decoder that is made at the import"
            if name == "convert" and not known.intersection(given[1:]):
                yield node.lineno, "convert to a type that is learnt at the import"


def uses_that_hide(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Where a call would not be seen as msgspec's."""
    learning = {"msgspec.convert", *(f"msgspec.{form}.decode" for form in FORMS)}
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{each.name}".removeprefix("msgspec.") for each in node.names}
            if not names.isdisjoint({"convert", *(f"{f}.{n}" for f in FORMS for n in USES)}):
                yield node.lineno, "import msgspec itself"
        if isinstance(node, ast.Attribute) and node not in called and ast.unparse(node) in learning:
            yield node.lineno, "call it, with its type"


USES = ("decode", "Decoder")
FORMS = ("json", "msgpack", "yaml", "toml")
"""Of msgspec."""


def functions_of(tree: ast.Module) -> Iterator[ast.AST]:
    """Every function and lambda that is within no other."""
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield node
        else:
            todo.extend(ast.iter_child_nodes(node))


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("    return msgspec.json.decode(data, type=Kind)", 1),
        ("    return msgspec.json.decode(data)", 0),
        ("    return msgspec.json.Decoder(Kind).decode(data)", 1),
        ("    return msgspec.json.Decoder(type=Kind, strict=False).decode(data)", 1),
        ("    return msgspec.convert(data, Kind)", 1),
        ("    return msgspec.convert(data, KNOWN, strict=False)", 0),
        ("    return msgspec.convert(data, type=KNOWN)", 0),
        ("    return [lambda: msgspec.msgpack.decode(data, type=Kind)]", 1),
        ("    return partial(msgspec.json.decode, type=Kind)(data)", 1),
        ("    return map(msgspec.convert, data)", 1),
        ("    from msgspec import convert", 1),
        ("    from msgspec.json import Decoder as Read", 1),
        ("    from msgspec.structs import replace", 0),
    ],
)
def test_uses_that_learn(line: str, count: int) -> None:
    text = f"KNOWN: Final = learnt(Kind)\nread: Final = json.Decoder(Kind)\ndef read():\n{line}\n"
    assert len(list(uses_that_learn(ast.parse(text)))) == count


def test_every_imported_library_is_declared() -> None:
    options, extras = setup_cfg()["options"], setup_cfg()["options.extras_require"]
    text = "\n".join([options["install_requires"], *extras.values()])
    declared = {_normal(line) for line in re.findall(r"^[\w.-]+", text, re.MULTILINE)}
    installed = importlib.metadata.packages_distributions()
    wrong = set()
    for module in modules():
        for top in {imported.partition(".")[0] for imported in module.imports()}:
            names = {_normal(name) for name in installed.get(top, [top])}
            if top not in sys.stdlib_module_names | MAY_IMPORT.keys() and not names & declared:
                wrong.add(f"{module.name} imports {top}")
    assert wrong == set()


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_packages_are_installed() -> None:
    include = setup_cfg()["options.packages.find"]["include"].split()
    there = {m.name for m in modules() if m.path.name == "__init__.py"}
    directories = {".".join(m.path.parent.relative_to(ROOT).parts) for m in modules()}
    assert directories - there == set(), "a package without __init__.py"
    assert set(find_packages(str(ROOT), include=include)) == there, "setup.cfg installs others"


def test_door_plates() -> None:
    assert [m.name for m in modules() if not (ast.get_docstring(m.tree) or "").strip()] == []


def test_init_modules_re_export_nothing() -> None:
    inits = [m for m in modules() if m.path.name == "__init__.py"]
    importing = {m.name: set(m.imports()) - {"__future__"} for m in inits if list(m.imports())}
    assert importing == CHOOSES_AT_IMPORT


def test_no_grab_bags() -> None:
    wrong = [m.name for m in modules() if BANNED_NAMES & set(m.name.split("."))]
    wrong += [name for name in BANNED_NAMES if (ROOT / name).exists()]
    assert wrong == []


def _lines(module: Module) -> int:
    return len(module.path.read_text(encoding="utf-8").splitlines())


def test_modules_stay_readable() -> None:
    sizes = {module.name: _lines(module) for module in modules()}
    assert {name: size for name, size in sizes.items() if size > MAX_MODULE_LINES} == {}


def test_the_list_of_long_modules_only_shrinks() -> None:
    """A module that was cut takes its line with it, or a lower figure."""
    sizes = {module.name: _lines(module) for module in modules()}
    long = {name: size for name, size in sizes.items() if size > USUAL_MODULE_LINES}
    assert long.keys() == LONG_MODULES.keys()
    assert {name: size for name, size in long.items() if not _fits(size, LONG_MODULES[name])} == {}


def _fits(size: int, listed: int) -> bool:
    return listed - 2 * LIST_STEP < size <= listed


def _methods(node: ast.ClassDef) -> int:
    return sum(isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) for one in node.body)


def test_the_list_of_classes_with_many_methods_only_shrinks() -> None:
    many = {
        f"{module.name}.{node.name}": count
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.ClassDef) and (count := _methods(node)) > USUAL_METHODS
    }
    assert many == MANY_METHODS


def _is_command(node: ast.AST) -> bool:
    """Whether a function is a command of mqadmin or of mqchaos: its parameters are the command
    line, each declared with its option there and passed by name by click, and called by nobody."""
    decorators = getattr(node, "decorator_list", [])
    called = [each.func for each in decorators if isinstance(each, ast.Call)]
    return any(ast.unparse(each) in COMMAND_DECORATORS for each in called)


def _parameters(module: Module) -> Iterator[tuple[str, int]]:
    """Every function of a module with the number of its parameters, without `self`; commands
    excepted."""

    def walk(node: ast.AST, name: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            own = f"{name}.{child.name}" if isinstance(child, _NAMED) else name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_command(child):
                named = [*child.args.posonlyargs, *child.args.args, *child.args.kwonlyargs]
                yield own, len([each for each in named if each.arg not in ("self", "cls")])
            yield from walk(child, own)

    return walk(module.tree, module.name)


def _has_a_test_of_its_name(module: Module) -> bool:
    """In the folder of tests that mirrors the module's, or in one above it in the same room."""
    folder = module.path.relative_to(ROOT).parent
    folders = [folder, *folder.parents][:-1]
    return any((ROOT / "tests" / each / f"test_{module.path.stem}.py").exists() for each in folders)


def _named_tests(module: Module) -> list[str]:
    """What the docstring says after "Tested by"."""
    docstring = " ".join((ast.get_docstring(module.tree) or "").split("\n"))
    return [
        path
        for found in re.findall(r"Tested by ((?:tests/[\w/]+\.py[ ,and]*)+)", docstring)
        for path in re.findall(r"tests/[\w/]+\.py", found)
    ]


def test_whoever_changes_a_module_finds_its_tests() -> None:
    wrong = []
    for module in modules():
        named = _named_tests(module)
        wrong += [f"{module.name}: {path}" for path in named if not (ROOT / path).exists()]
        size = len(module.path.read_text(encoding="utf-8").splitlines())
        if size > TESTED_MODULE_LINES and not named and not _has_a_test_of_its_name(module):
            wrong.append(f"{module.name}: no test_{module.path.stem}.py, no Tested by tests/….py.")
    assert wrong == []


def _imported(module: Module) -> set[str]:
    """Modules, names in them that may be modules, and texts that may be: a test that runs a program
    names its module so."""
    names = set(module.imports())
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value.partition(":")[0])
    return names


@functools.cache
def _imported_by_tests(name: str) -> frozenset[str]:
    """Of a module of tests; nothing of a name that is none."""
    path = ROOT / f"{name.replace('.', '/')}.py"
    if not path.exists():
        return frozenset()
    return frozenset(_imported(Module(name, path, ast.parse(path.read_text(encoding="utf-8")))))


def _reached(test: str, imports: dict[str, set[str]]) -> set[str]:
    """All that a test imports, itself or by others. imports: of each product module."""
    todo, seen = [test.removesuffix(".py").replace("/", ".")], set()
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.add(one)
            todo += _imported_by_tests(one) if one.startswith("tests.") else imports.get(one, ())
    return seen


def test_tests_that_a_docstring_names_drive_the_module() -> None:
    """They import it, or what uses it, or they run whole brokers: nothing else could."""
    imports = {module.name: _imported(module) for module in modules()}
    # Its rows name them without their package.
    imports["tools.command_table"] |= {name for name in imports if name.startswith(COMMANDS)}
    users: dict[str, list[str]] = {}
    for module in modules():
        for path in _named_tests(module):
            users.setdefault(path, []).append(module.name)
    wrong = {
        path: missing
        for path, names in users.items()
        if not path.startswith(RUN_WHOLE_BROKERS)
        and (missing := set(names) - _reached(path, imports))
    }
    assert wrong == {}


def test_parameters_that_belong_together_have_a_name() -> None:
    many = {
        name: number
        for module in modules()
        for name, number in _parameters(module)
        if number > MAX_PARAMETERS
    }
    assert many == MANY_PARAMETERS


def test_abstract_methods_are_held() -> None:
    """Of a class that is no ABC an instance can be made without them."""
    loose = [
        f"{module.name}.{node.name}"
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
        and "abstractmethod" in {word for part in node.body for word in _decorators(part)}
        and "ABC" not in {base.id for base in node.bases if isinstance(base, ast.Name)}
    ]
    assert loose == []


def _decorators(part: ast.stmt) -> list[str]:
    found = part.decorator_list if isinstance(part, ast.FunctionDef) else []
    return [each.id for each in found if isinstance(each, ast.Name)]


def test_functions_stay_readable() -> None:
    wrong = [
        f"{module.name}.{node.name}: {size} lines"
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (size := (node.end_lineno or 0) - node.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert wrong == []


@functools.cache
def _read_attributes() -> frozenset[str]:
    return frozenset(
        node.attr
        for module in modules()
        for node in module.nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    )


SETTINGS_CLASSES = {
    *broker_startup.KEYS.classes,
    *container_startup.KEYS.classes,
    *namesrv_startup.KEYS.classes,
    *controller_startup.KEYS.classes,
}


def _unread(cls: type) -> set[str]:
    return {spec.name for spec in field_specs(cls)} - _read_attributes()


THREADS_OWN = {
    *(name for name in vars(threading.Thread) if not name.startswith("__")),
    *vars(threading.Thread()),
    # Of versions that this one may not be: 3.13 has _handle, 3.14 _context.
    *("_handle", "_os_thread_handle", "_context", "_is_stopped", "_tstate_lock", "_after_fork"),
} - {"run", "name", "daemon"}
"""Names that a class derived from Thread must not take: threads of another Python use them."""


def test_no_thread_takes_a_name_of_threads() -> None:
    taken = []
    for room in (*MAY_IMPORT, "tests"):
        for path in sorted((ROOT / room).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if re.search(r"^class \w+\(.*Thread\)", text, re.MULTILINE):
                taken += [f"{path.relative_to(ROOT)}: {name}" for name in _threads_names(text)]
    assert taken == []


def _threads_names(text: str) -> set[str]:
    """What classes derived from anything called ...Thread define or set, of Thread's own names."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and any(
            ast.unparse(base).endswith("Thread") and ast.unparse(base) != "ServiceThread"
            for base in node.bases
        ):
            for part in ast.walk(node):
                match part:
                    case ast.FunctionDef(name=name):
                        names.add(name)
                    case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                        names.add(name)
    return names & THREADS_OWN


@pytest.mark.parametrize("cls", sorted(SETTINGS_CLASSES, key=str), ids=lambda cls: cls.__name__)
def test_every_setting_is_read(cls: type) -> None:
    """Whoever finds a field here reads it, or moves its key to conf/ignored_keys.py."""
    assert _unread(cls) - PENDING_FIELDS.get(cls.__name__, set()) == set()


def test_pending_settings_are_still_unread() -> None:
    """What is read by now leaves PENDING_FIELDS."""
    read = {
        cls.__name__: PENDING_FIELDS.get(cls.__name__, set()) - _unread(cls)
        for cls in SETTINGS_CLASSES
    }
    assert {name: fields for name, fields in read.items() if fields} == {}


def test_commands_of_the_readme_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = set(re.findall(r"(?<![\w/])(?:bin/[\w-]+|\.ci/run)", text))
    assert {"bin/mqbroker", "bin/test"} <= commands
    assert [name for name in sorted(commands) if not os.access(ROOT / name, os.X_OK)] == []


_PATHS = re.compile(
    r"(?<![\w/.<$-])"
    r"(?:conf|remoting|ipc|store|ha|namesrv|broker|tools|console|spark|tests|bin|packaging|docs|examples)"
    r"/[\w/.-]*\w\.(?:py|md|ya?ml|conf|properties|service|json|j2|png|rules)\b"
)
_MADE_LATER = {"conf/tools.yml", "conf/plain_acl.yml", "namesrv/kvConfig.json"}
"""Files of an installation, not of the project."""


def _documents() -> list[Path]:
    top = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
    return [*top, ROOT / "examples" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@every_row("path", _documents())
def test_files_that_documents_name_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = set(_PATHS.findall(text)) - _MADE_LATER
    links = {
        link
        for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
        if not (path.parent / link).exists()
    }
    missing = {name for name in named if not (ROOT / name).exists() and "/out/" not in name}
    assert missing | links == set()


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 1_200
