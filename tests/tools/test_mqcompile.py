"""tools.mqcompile: which modules may be compiled, what it says, a broker of compiled modules."""

from __future__ import annotations

import ast
import functools
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from conf.compiled_modules import (
    LIBRARY,
    LIBRARY_SUFFIX,
    MANIFEST,
    VARIABLE,
    compiled_directory,
    file_digests,
    source_digests,
)
from remoting.request_code import RequestCode
from tests.support.broker_copy import copy_broker, environment_of
from tests.support.compiled_modules import make_compiled
from tests.support.our_broker import OurBroker
from tools import mqcompile
from tools.compiled_module_list import COMPILED_MODULES
from tools.mqcompile import CompileError, check_tools, compile_modules, main
from tools.mypyc_build import FLAGS

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def product() -> dict[str, ast.Module]:
    """Every module of a broker, parsed."""
    return {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): ast.parse(
            (ROOT / name).read_text()
        )
        for name in source_digests(ROOT)
    }


def classes_of(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """The top classes of a module, each with its bases: `module.name` where it is imported."""
    origins: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            origins |= {
                alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names
            }
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            texts = map(ast.unparse, node.bases)
            yield node.name, {origins.get(text, text) for text in texts}


def test_the_list_is_of_modules_that_may_be_compiled() -> None:
    assert list(COMPILED_MODULES) == sorted(set(COMPILED_MODULES))
    assert set(COMPILED_MODULES) <= product().keys()
    for name in COMPILED_MODULES:
        tree = product()[name]
        for defined, bases in classes_of(tree):
            assert not bases & {"msgspec.Struct", "Struct"}, f"{name}.{defined}: see the list"
        assert "__file__" not in ast.unparse(tree), f"{name} asks for its file"


def test_nothing_that_is_not_compiled_derives_from_what_is() -> None:
    """A Protocol may: it is never made."""
    deriving = [
        f"{name}.{derived} from {base}"
        for name, tree in product().items()
        if name not in COMPILED_MODULES
        for derived, bases in classes_of(tree)
        if "typing.Protocol" not in bases
        for base in bases
        if base.rpartition(".")[0] in COMPILED_MODULES
    ]
    assert not deriving, "a class that is not compiled cannot derive from one that is"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    with pytest.raises(CompileError, match=r"no C compiler \(no-such-compiler\): Debian"):
        check_tools()
    # Any program will do: none is started, and this machine may have no compiler.
    monkeypatch.setenv("CC", "sh")
    with monkeypatch.context() as patch:
        patch.setattr(mqcompile.sysconfig, "get_path", lambda _name: str(tmp_path))
        with pytest.raises(CompileError, match=r"there is no .*/Python\.h: .*python3-dev"):
            check_tools()
    monkeypatch.setattr(mqcompile.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(CompileError, match=r"has no mypyc and no setuptools: pip install"):
        check_tools()


def test_gcc_does_not_look_at_how_c_is_indented() -> None:
    """It takes longer than all else that GCC does with what mypyc writes; GCC itself is asked."""
    usual = sysconfig.get_config_var("CFLAGS").split()
    command = ["gcc", *usual, "-Wall", *FLAGS, "-Q", "--help=warnings"]
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    states = {
        fields[0]: fields[-1] for line in told.splitlines() if len(fields := line.split()) > 1
    }
    assert states["-Wparentheses"] == "[enabled]"
    assert states["-Wmisleading-indentation"] == "[disabled]"


def fake_home(home: Path) -> Path:
    (home / "store").mkdir()
    (home / "store/one.py").write_text("")
    return home


def test_check_and_remove(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home = fake_home(tmp_path)
    assert main(["--check"], home) == 1
    assert "to be compiled: " in capsys.readouterr().out
    directory = compiled_directory(home)
    directory.mkdir(parents=True)
    for name in (LIBRARY, *COMPILED_MODULES):
        (directory / f"{name}{LIBRARY_SUFFIX}").touch()
    manifest = {
        "modules": COMPILED_MODULES,
        "sources": source_digests(home),
        "files": file_digests(directory),
    }
    (directory / MANIFEST).write_text(json.dumps({**manifest, "modules": ["remoting.frame"]}))
    assert main(["--check"], home) == 1
    assert "others are to be compiled now" in capsys.readouterr().out
    (directory / MANIFEST).write_text(json.dumps(manifest))
    assert main(["--check"], home) == 0
    assert main([], home) == 0
    assert capsys.readouterr().out.count("up to date: ") == 2
    (home / "store/one.py").write_text("#")
    assert main(["--check"], home) == 1
    assert "store/one.py is not what it was" in capsys.readouterr().out
    assert main(["--remove"], home) == 0
    assert main(["--remove"], home) == 0
    assert not directory.exists()
    assert capsys.readouterr().out.split(":")[0] == "removed"


def test_what_does_not_compile_changes_nothing_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mqcompile, "check_tools", lambda: None)
    home = fake_home(tmp_path)
    assert main([], home) == 1
    error = capsys.readouterr().err
    assert error.startswith("mqcompile: it did not compile:\n")
    assert "broker/append/append_queue.py" in error, "the modules of the list are not there"
    assert [path.suffix for path in compiled_directory(home).parent.iterdir()] == [".lock"]


@pytest.fixture(scope="module")
def compiled_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the broker with its compiled modules: those of this run, or of this checkout, else
    made for these tests, without optimizing."""
    home = copy_broker(tmp_path_factory.mktemp("home"))
    if make_compiled():
        shutil.copytree(compiled_directory(ROOT), compiled_directory(home))
        return home
    made = compile_modules(home, tmp_path_factory.mktemp("work"), optimize="0")
    compiled_directory(home).parent.mkdir()
    shutil.move(made, compiled_directory(home))
    return home


def broker_of(home: Path, root: Path, **environment: str) -> OurBroker:
    broker = OurBroker(root)
    broker.env = {**environment_of(home), **environment}
    return broker


@pytest.mark.slow
def test_a_broker_of_compiled_modules(compiled_home: Path, tmp_path: Path) -> None:
    with broker_of(compiled_home, tmp_path, **{VARIABLE: "required"}).start() as broker:
        with broker.client() as client:
            sent = client.send("Topic", 1, b"body", "key")
            batched = [client.send("Topic", 1, b"x" * size) for size in (0, 1, 10_000)]
            assert [each.queue_offset for each in (sent, *batched)] == [0, 1, 2, 3]
            found = client.pull("Topic", 1, 0)
            while found.max_offset < 4:
                found = client.pull("Topic", 1, 0)
            assert [len(message.body) for message in found.messages] == [4, 0, 1, 10_000]
            table = json.loads(client.call(RequestCode.GET_BROKER_RUNTIME_INFO, {}).body)["table"]
            assert table["compiledModules"] == str(len(COMPILED_MODULES))
            assert client.send("Topic", 99, b"").code == 1, "refused, as by the sources"
        assert broker.terminate() == 0
        assert broker.check().errors == []
    for log in ("broker", "remoting", "store"):
        assert f"{len(COMPILED_MODULES)} modules are compiled ones" in broker.log(log)


@pytest.mark.slow
def test_a_broker_whose_library_was_cut_in_half_says_so_and_runs_the_sources(
    compiled_home: Path, tmp_path: Path
) -> None:
    """Its import would end every process with SIGBUS."""
    library = compiled_directory(compiled_home) / f"{LIBRARY}{LIBRARY_SUFFIX}"
    whole = library.read_bytes()
    library.write_bytes(whole[: len(whole) // 2])
    try:
        with broker_of(compiled_home, tmp_path).start() as broker:
            assert "WARNING" in broker.output()
            assert f"{library} is not what was compiled" in broker.output()
            assert "run mqcompile again" in broker.output()
            with broker.client() as client:
                assert client.send("Topic", 0, b"body").code == 0
    finally:
        library.write_bytes(whole)


@pytest.mark.slow
def test_a_broker_whose_sources_have_changed_says_so_and_runs_them(
    compiled_home: Path, tmp_path: Path
) -> None:
    source = compiled_home / "store/errors.py"
    before = source.read_bytes()
    source.write_bytes(before + b"# changed\n")
    try:
        with broker_of(compiled_home, tmp_path).start() as broker:
            assert "WARNING" in broker.output()
            assert "store/errors.py is not what it was when they were compiled" in broker.output()
            with broker.client() as client:
                assert client.send("Topic", 0, b"body").code == 0
        done = subprocess.run(
            [sys.executable, "-m", "broker"],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(compiled_home),
                "PYTHONSAFEPATH": "1",
                VARIABLE: "required",
            },
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        source.write_bytes(before)
    assert done.returncode == 1
    assert done.stderr.startswith(f"broker: {VARIABLE}=required, but no module is a compiled one: ")
    assert done.stderr.count("\n") == 1
