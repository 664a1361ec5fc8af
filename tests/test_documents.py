"""The documents: what can be read in them, and whether what they name is there."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib.util
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from broker import broker_startup
from broker.container import container_startup
from controller import controller_startup
from namesrv import namesrv_startup
from tests.support.every_row import every_row
from tests.support.garbage import not_searched
from tools.command_table import COMMANDS

ROOT: Final = Path(__file__).resolve().parents[1]
MAX_ARCHITECTURE_COLUMNS: Final = 100
MAX_TABLE_COLUMNS: Final = 200
"""A list or a shorter table says the same in lines that a diff can show."""


def documents() -> list[Path]:
    """All of the project's documents, whoever reads them."""
    top = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
    beside = [ROOT / name / "README.md" for name in ("examples", "tests/interop")]
    return [*top, *beside, *sorted((ROOT / "docs").rglob("*.md"))]


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_architecture_fits_a_terminal() -> None:
    lines = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > MAX_ARCHITECTURE_COLUMNS] == []


def test_table_lines_can_be_read_in_a_diff() -> None:
    long = [
        f"{_name(path)}:{number}: {line[:60]}"
        for path in documents()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if line.startswith("|") and len(line) > MAX_TABLE_COLUMNS
    ]
    assert long == []


ROOMS: Final = (
    "conf",
    "ipc",
    "remoting",
    "store",
    "ha",
    "namesrv",
    "broker",
    "tools",
    "spark",
    "controller",
    "adopt",
)
OTHERS_NAMES: Final = {
    "RocketMQ": {
        *("AclClientRPCHook", "DecodeMessageId"),
        *("DefaultAuthenticationProvider", "DefaultAuthorizationProvider"),
        *("DefaultHeartBeatSyncerTopic", "GroupName", "MsgId"),
        *("MessageSelector", "MultiPathMappedFileQueue", "RemotingSerializable", "RocketMQ"),
        *("SplitBatchProducer", "StatefulAuthenticationStrategy", "StatefulAuthorizationStrategy"),
        *("StatelessAuthenticationStrategy", "StatelessAuthorizationStrategy", "TagA"),
    },
    "Java, Linux, systemd, Kubernetes": {
        *("CronJob", "KillMode", "LimitMEMLOCK", "LimitNOFILE", "NullPointerException", "Pss_Anon"),
    },
    "projects and words": {
        *(
            "CamelCase",
            "CycloneDX",
            "OpenMessaging",
            "OpenSLO",
            "PyPI",
            "OpenSSL",
            "PySpark",
            "PySyncObj",
            "PyYAML",
        ),
        *("RocksDB", "SparkSession", "ZooKeeper"),
    },
}
"""Names in documents that look like classes of ours and are not; each is somebody's, as the key
says."""
_NAMED = re.compile(r"(?<![\w/.$-])([A-Z]\w*[a-z]\w*[A-Z]\w*)(?:\.([a-z_]\w*))?")
"""CamelCase and a member of it, in prose, code and diagrams alike."""
_CALLED = re.compile(r"`(?:\w+\.)*([a-z_]\w*)\(\)`")
_MODULE = re.compile(r"`([\w/]+\.py)`")
_TEST = re.compile(r"`(test_\w+)`")
_ALERT = re.compile(r"alert: (\w+)")


class Names:
    """What there is to be named: modules, classes with their members, functions, words, alerts."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.members: defaultdict[str, set[str]] = defaultdict(set)
        self.functions: set[str] = set()
        self.words: set[str] = set(dir(builtins)).union(*OTHERS_NAMES.values())

    def add_module(self, path: Path) -> None:
        self.modules.add(_name(path))
        tree = ast.parse(path.read_text(encoding="utf-8"))
        self.words |= {
            target.id
            for node in tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef(name=name):
                    self.members[name] |= _members(node)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    self.functions.add(name)
                case ast.Constant(value=str(word)):
                    # Names of topics, groups, threads, metrics, settings.
                    self.words.add(word)

    def add_test(self, path: Path) -> None:
        """Of tests and examples the names of modules, classes and functions are enough."""
        self.modules.add(_name(path))
        text = path.read_text(encoding="utf-8")
        self.words |= set(re.findall(r"^class (\w+)", text, re.MULTILINE))
        self.functions |= set(re.findall(r"^ *def (\w+)", text, re.MULTILINE))

    def wrong_in(self, text: str) -> set[str]:
        """What `text` names as if it were ours, and is not there."""
        wrong = {f"{name}()" for name in _CALLED.findall(text)} - {
            f"{name}()" for name in self.functions | OTHERS_FUNCTIONS
        }
        wrong |= {
            name
            for name in _MODULE.findall(text)
            if not any(f"/{module}".endswith(f"/{name}") for module in self.modules)
        }
        tests = {module.rpartition("/")[2].removesuffix(".py") for module in self.modules}
        wrong |= set(_TEST.findall(text)) - tests - self.functions
        for name, member in _NAMED.findall(text):
            if name not in self.members:
                wrong |= {name} - self.words
            elif member not in {"", "md", "py"} | self.members[name]:
                wrong.add(f"{name}.{member}")
        return wrong


OTHERS_FUNCTIONS: Final = {"increase"}
"""Functions of PromQL."""


def _members(cls: ast.ClassDef) -> set[str]:
    """Methods, fields and attributes of a class, inner classes' with them."""
    names = set()
    for node in ast.walk(cls):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
    return names


@functools.cache
def there() -> Names:
    """All of the project's names."""
    names = Names()
    with not_searched():
        for room in ROOMS:
            for path in (ROOT / room).rglob("*.py"):
                names.add_module(path)
    for folder in ("examples", "packaging", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            if not any(part.startswith("lib-") for part in path.parts):
                names.add_test(path)
    for path in (ROOT / "packaging").rglob("*.y*ml"):
        names.words |= set(_ALERT.findall(path.read_text(encoding="utf-8")))
    return names


@pytest.mark.parametrize("path", documents(), ids=_name)
def test_names_in_documents_exist(path: Path) -> None:
    if path.name == "CHANGELOG.md":  # it tells of what was
        return
    assert there().wrong_in(path.read_text(encoding="utf-8")) == set()


_SET = re.compile(r"`([a-z]+[A-Z]\w*)=")
_ASKED = re.compile(r"`(?:bin/)?mqadmin ([a-z]+[A-Z]\w*)")
CLIENTS_KEYS: Final = {"authClient"}
"""Keys that documents set for others: in a TLS file of a client."""


@functools.cache
def _keys() -> frozenset[str]:
    """Settings of every program of ours, and those of RocketMQ that have no effect here."""
    startups = (broker_startup, container_startup, namesrv_startup, controller_startup)
    tables = [startup.KEYS for startup in startups]
    return frozenset().union(*(table.known_keys() for table in tables))


@every_row("path", documents())
def test_settings_and_commands_in_documents_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert set(_SET.findall(text)) - _keys() - CLIENTS_KEYS == set()
    assert set(_ASKED.findall(text)) - COMMANDS.keys() == set()


def test_every_name_of_others_is_used_and_none_of_ours() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in documents())
    others = set().union(*OTHERS_NAMES.values())
    assert {name for name in others if not re.search(rf"\b{name}\b", text)} == set()
    assert others & there().members.keys() == set()


def test_a_name_that_is_gone_is_found() -> None:
    """What stood in documents for months, and what may stand there."""
    gone = "`ReplicaSight.read()`, CommitLog.forget, `append/append_line.py`, `find_nothing()`"
    good = "`CommitLog.append`, `broker/send/rules.py`, RocketMQInFlightHigh, StaticTopicThread"
    assert there().wrong_in(gone) == {
        *("ReplicaSight", "CommitLog.forget", "append/append_line.py", "find_nothing()"),
    }
    assert there().wrong_in(good) == set()


def _shell_lines(text: str) -> Iterator[str]:
    """Commands of a document's sh blocks, without their comments."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            yield from (part.strip() for part in line.partition("#")[0].split("&&"))


def test_commands_of_a_newcomer_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = [line for line in _shell_lines(text) if line]
    assert "bin/test tests/ipc" in lines
    for line in lines:
        program, *arguments = line.split()
        if program.startswith(("bin/", ".ci/")):
            assert os.access(ROOT / program, os.X_OK), line
        elif program == ".venv/bin/python":
            assert arguments[0] == "-m", line
            assert importlib.util.find_spec(arguments[1]), line
        else:
            assert program in {"git", "cd"}, line
        paths = [argument for argument in arguments if argument.startswith("tests/")]
        assert [path for path in paths if not (ROOT / path).exists()] == [], line


def test_hooks_do_what_bin_test_does() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    assert {hook["language"] for hook in hooks} == {"system"}
    script = (ROOT / "bin" / "test").read_text(encoding="utf-8")
    steps = dict(re.findall(r"^step (\w+) (.+)$", script, re.MULTILINE))
    rooms = re.search(r"for room in ([\w ]+); do", script)
    assert rooms is not None
    assert {hook["id"]: hook["entry"] for hook in hooks} == {
        **{name: f".venv/bin/python -m {step}" for name, step in steps.items()},
        "types": f".venv/bin/python -m mypy {rooms[1]} packaging",
        "test": "bin/test",
    }


DECISIONS: Final = ROOT / "docs" / "decisions"
UNNOTICED: Final = 35
"""Entries that no test would notice. It only goes down: who adds one names its test."""
_NOTICED = re.compile(r"^\*(?:\d+ )?[A-Z][a-z]+ 20\d\d\. Noticed by\*: (.+?)\n\n", re.M | re.S)
_NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)`(?:\s\(`(\w+)`\))?")


def _decisions() -> Iterator[tuple[str, str, str]]:
    """(file, heading, text) of each entry; libraries are a list of their own."""
    for path in sorted(DECISIONS.glob("*.md")):
        if path.stem not in {"README", "libraries"}:
            for entry in path.read_text(encoding="utf-8").split("\n## ")[1:]:
                heading, _, text = entry.partition("\n")
                yield path.name, heading, f"{text}\n\n"


def test_every_decision_has_a_date_and_the_test_that_would_notice() -> None:
    wrong, unnoticed = [], 0
    for name, heading, text in _decisions():
        noticed = _NOTICED.findall(text)
        if len(noticed) != 1:
            wrong.append(f"{name}: {heading}: no date or no test")
            continue
        tests = _NAMED_TEST.findall(noticed[0])
        unnoticed += noticed[0] == "none"
        wrong += [
            f"{name}: {heading}: {path} {function}"
            for path, function in tests
            if not (ROOT / path).exists()
            or (function and f"def {function}(" not in (ROOT / path).read_text(encoding="utf-8"))
        ]
        if not tests and noticed[0] != "none":
            wrong.append(f"{name}: {heading}: {noticed[0]}")
    assert wrong == []
    assert unnoticed == UNNOTICED


def test_the_index_of_decisions_is_complete() -> None:
    index = " ".join((DECISIONS / "README.md").read_text(encoding="utf-8").split())
    missing = [f"{name}: {head}" for name, head, _ in _decisions() if f"- {head}" not in index]
    missing += [
        path.name for path in DECISIONS.glob("*.md") if path.name not in f"README.md{index}"
    ]
    assert missing == []
