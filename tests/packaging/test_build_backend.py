"""packaging/wheel/build_backend.py: which wheel it builds, what is in it, what it says.

The compiler's part is replaced: tests/packaging/test_release.py has a real one compile.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from conf.compiled_modules import (
    LIBRARY,
    LIBRARY_SUFFIX,
    MANIFEST,
    VARIABLE,
    ModulesInUse,
    compiled_directory,
    file_digests,
    find_staleness,
    source_digests,
    use_compiled_modules,
)
from tools import mqcompile
from tools.mqcompile import CompileError

ROOT = Path(__file__).resolve().parents[2]
SUFFIX = LIBRARY_SUFFIX.strip(".").removesuffix(".so")
OTHER_SUFFIX = SUFFIX.replace("cpython-3", "cpython-9")
SOURCES = {
    "broker/__init__.py": "",
    "broker/one.py": "ONE = 1\n",
    "store/__init__.py": "",
    "setup.py": (ROOT / "setup.py").read_text(),
    "setup.cfg": "[metadata]\nname = small\nversion = 1.0\n"
    "[options]\npackages = broker, store\ninstall_requires =\n    numpy >= 1.26\n"
    "[options.extras_require]\nfast =\n    # mypyc\n    mypy >= 2.4\n",
}


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The backend as pip loads it, in a checkout of three modules; nothing is chosen."""
    for name, text in SOURCES.items():
        (tmp_path / "checkout" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkout" / name).write_text(text)
    monkeypatch.chdir(tmp_path / "checkout")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv(VARIABLE)
    path = ROOT / "packaging" / "wheel" / "build_backend.py"
    spec = importlib.util.spec_from_file_location("build_backend", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "build_backend", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PROJECT", tmp_path / "checkout")
    monkeypatch.setattr(mqcompile, "check_tools", lambda: None)
    monkeypatch.setattr(mqcompile, "find_missing_compiler", lambda: None)
    monkeypatch.setattr(mqcompile, "compile_modules", compile_nothing)
    level = logging.getLogger().level
    yield module
    # setuptools sets it for its whole process.
    logging.getLogger().setLevel(level)


def compile_nothing(home: Path, work: Path, strip: bool) -> Path:
    """As tools.mqcompile.compile_modules, of one module."""
    assert strip
    made = work / "made"
    made.mkdir()
    for name in ("broker.one", LIBRARY):
        (made / f"{name}{LIBRARY_SUFFIX}").write_bytes(name.encode())
    manifest = {
        "modules": ["broker.one"],
        "sources": source_digests(home),
        "files": file_digests(made),
    }
    (made / MANIFEST).write_text(json.dumps(manifest))
    return made


def refuse(why: str) -> Callable[..., None]:
    def refusing(*_given: object, **_named: object) -> None:
        raise CompileError(why)

    return refusing


def unpack(wheel: Path, home: Path) -> set[str]:
    """The names in it but those of its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(home)
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_a_wheel_with_compiled_modules_is_of_this_python_and_complete(
    backend: ModuleType, tmp_path: Path
) -> None:
    wheel = tmp_path / backend.build_wheel(str(tmp_path))
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert wheel.name.startswith(f"small-1.0-{version}-{version}-linux_")
    home = tmp_path / "site-packages"
    names = unpack(wheel, home)
    files = {f"broker.one{LIBRARY_SUFFIX}", f"{LIBRARY}{LIBRARY_SUFFIX}", MANIFEST}
    assert names == {
        *(name for name in SOURCES if name.count("/") == 1),
        *(f"rocketmq_compiled/{SUFFIX}/{name}" for name in files),
    }
    assert find_staleness(home) is None
    (metadata,) = home.glob("*.dist-info/WHEEL")
    assert "Root-Is-Purelib: false" in metadata.read_text()
    assert sorted(os.listdir(tmp_path / "checkout")) == sorted(
        {*(name.partition("/")[0] for name in SOURCES), "small.egg-info"}
    ), "no build directory"


def test_what_was_compiled_for_another_python_is_not_used_and_why(
    backend: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when someone copies one Python's site-packages to another's."""
    home = tmp_path / "site-packages"
    unpack(tmp_path / backend.build_wheel(str(tmp_path)), home)
    compiled_directory(home).rename(home / "rocketmq_compiled" / OTHER_SUFFIX)
    monkeypatch.setattr("conf.compiled_modules._in_use", ModulesInUse())
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    found = use_compiled_modules({}, home)
    assert (found.compiled, found.is_stale) == (0, False)
    assert f"there is none in {compiled_directory(home)}" in found.text


def test_off_builds_one_for_every_python(
    backend: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beside what an earlier version and an earlier build left in the checkout."""
    for name in (f"rocketmq_compiled/{SUFFIX}/{MANIFEST}", "build/lib/broker/gone.py"):
        path = tmp_path / "checkout" / name
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    monkeypatch.setenv(VARIABLE, "off")
    wheel = tmp_path / backend.build_wheel(str(tmp_path))
    assert wheel.name == "small-1.0-py3-none-any.whl"
    assert unpack(wheel, tmp_path / "home") == {name for name in SOURCES if name.count("/") == 1}


@pytest.mark.parametrize("step", ["check_tools", "compile_modules"])
def test_what_cannot_be_compiled_is_said_or_refused(
    backend: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    step: str,
) -> None:
    monkeypatch.setattr(mqcompile, step, refuse("there is no C compiler (cc): apt install gcc"))
    assert backend.build_wheel(str(tmp_path)) == "small-1.0-py3-none-any.whl"
    said = [line for line in capsys.readouterr().err.splitlines() if "compiled" in line]
    assert said == [
        "this wheel has no compiled modules: there is no C compiler (cc): apt install gcc"
    ]
    monkeypatch.setenv(VARIABLE, "required")
    with pytest.raises(
        SystemExit, match=r"required, but .* cannot be compiled: there is no C comp"
    ):
        backend.build_wheel(str(tmp_path))


def test_mypyc_is_asked_for_where_it_can_compile(
    backend: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what the product is installed with: mypyc compiles other code without those types."""
    wanted = ["numpy >= 1.26", "mypy >= 2.4"]
    assert backend.get_requires_for_build_wheel() == wanted
    monkeypatch.setattr(mqcompile, "find_missing_compiler", lambda: "there is none")
    assert backend.get_requires_for_build_wheel() == []
    monkeypatch.setenv(VARIABLE, "required")
    assert backend.get_requires_for_build_wheel() == wanted
    monkeypatch.setenv(VARIABLE, "off")
    assert backend.get_requires_for_build_wheel() == []
    monkeypatch.setenv(VARIABLE, "on")
    with pytest.raises(SystemExit, match="ROCKETMQ_COMPILED=on: must be off, required or not set"):
        backend.get_requires_for_build_wheel()


def test_pip_finds_the_backend_in_a_checkout(tmp_path: Path) -> None:
    """The directory `packaging` does not hide the library of that name, which setuptools needs."""
    program = (
        "import pyproject_hooks as hooks\n"
        f"caller = hooks.BuildBackendHookCaller({str(ROOT)!r}, 'build_backend',"
        " backend_path=['packaging/wheel'])\n"
        "print(caller._supported_features())"
    )
    program = program.replace("pyproject_hooks", "pip._vendor.pyproject_hooks")
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={name: text for name, text in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "build_editable" in done.stdout
