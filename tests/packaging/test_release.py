"""packaging/release.py: what it refuses in which words; and, long, a whole release of a clone."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from conf.compiled_modules import MANIFEST
from tests.packaging.whole_run import ROOT, clone
from tools.compiled_module_list import COMPILED_MODULES


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "packaging" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One with a commit."""
    directory = tmp_path / "checkout"
    directory.mkdir()
    (directory / "setup.cfg").write_text("")
    named = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (["init", "-q"], ["add", "."], [*named, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-C", directory, *words], check=True)
    monkeypatch.setattr(release, "CHECKOUT", directory)
    return directory


def test_only_a_commit_is_released(release: ModuleType, checkout: Path) -> None:
    commit = release.check_checkout()
    assert re.fullmatch(r"[0-9a-f]{40}", commit)
    assert int(release.commit_time(commit)) > 0
    (checkout / "new.py").write_text("")
    with pytest.raises(release.ReleaseError, match=r"^new\.py is not committed: commit it or"):
        release.check_checkout()


def test_without_a_clone_it_says_what_it_needs(
    release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "CHECKOUT", tmp_path)
    with pytest.raises(release.ReleaseError, match=r"not a git repository.*from a clone"):
        release.check_checkout()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(release.ReleaseError, match="there is no git: apt install git"):
        release.check_checkout()


def test_what_is_in_the_way_stays(
    release: ModuleType, checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "out" / "old.whl"
    old.parent.mkdir()
    old.write_text("")
    assert release.main(["--out", str(old.parent)]) == 1
    assert capsys.readouterr().err == (
        f"release: {old.parent} is not empty: remove it, or name another with --out\n"
    )
    assert old.exists()


def test_a_program_that_fails_is_named_with_its_reason(
    release: ModuleType, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETMQ_COMPILED", "off")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    made = release.Release(tmp_path, tmp_path, release.check_checkout())
    with pytest.raises(release.ReleaseError, match=r"^twine failed: .*No module named no_such; /"):
        made.run("twine", "no_such", "check")
    printed = made.run("environment", "json.tool", "--help")
    assert "usage" in printed
    assert "json.tool --help" in (tmp_path / "release.log").read_text()
    program = tmp_path / "show.py"
    program.write_text("import os; print(sorted(os.environ))")
    shown = made._run("environment", [sys.executable, program], {})
    assert "SOURCE_DATE_EPOCH" in shown
    assert "ROCKETMQ_COMPILED" not in shown
    assert "PYTHONPATH" not in shown
    with pytest.raises(release.ReleaseError, match=r"^an environment: .*no-such-python"):
        made._run("an environment", ["no-such-python"], {})


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("Collecting a\nERROR: No matching distribution found for a\n\n[notice] new pip", 1),
        ("ROCKETMQ_COMPILED=required, but the modules: no gcc\nERROR Backend returned", 0),
        ("one\ntwo", 1),
    ],
)
def test_the_line_that_says_why(release: ModuleType, output: str, line: int) -> None:
    assert release.last_error(output) == output.splitlines()[line]
    assert release.last_error("\n") == "it printed nothing"


def test_every_library_of_the_sbom_is_there_with_a_licence(release: ModuleType) -> None:
    known = {"name": "PyYAML", "licenses": [{"license": {"id": "MIT"}}]}
    release.check_sbom({"components": [known]}, ["pyyaml"])
    with pytest.raises(release.ReleaseError, match="the SBOM has no numpy"):
        release.check_sbom({"components": [known]}, ["pyyaml", "numpy"])
    for licenses in ([], None):
        components = [known, {"name": "numpy", "licenses": licenses}, {"name": "cffi"}]
        with pytest.raises(release.ReleaseError, match="no licence of cffi, numpy: ask"):
            release.check_sbom({"components": components}, ["numpy"])


def test_the_sums_are_those_of_sha256sum(release: ModuleType, tmp_path: Path) -> None:
    for name in ("b.whl", "a.tar.gz"):
        (tmp_path / name).write_text(name)
    release.write_sums(tmp_path)
    assert check_sums(tmp_path) == ["a.tar.gz: OK", "b.whl: OK"]


def check_sums(directory: Path) -> list[str]:
    done = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_whole_release(tmp_path: Path) -> None:
    """Of what is committed here, in an environment of its own; it has tried what it made."""
    clone(tmp_path / "checkout")
    ours = ("BROKER_", "ROCKETMQ_", "PYTHON", "PYTEST_", "VIRTUAL_ENV")
    environment = {key: text for key, text in os.environ.items() if not key.startswith(ours)}
    out = tmp_path / "out"
    done = subprocess.run(
        [tmp_path / "checkout" / "packaging" / "release.sh", "--out", out],
        env={**environment, "BROKER_PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=3500,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    names = sorted(path.name for path in out.iterdir() if path.name != "SHA256SUMS")
    assert [line.partition(":")[0] for line in check_sums(out)] == names
    wanted = (r"\.cdx\.json", r"-cp3.*manylinux.*\.whl", r"-py3-none-any\.whl", r"\.tar\.gz")
    assert len(names) == len(wanted)
    assert all(re.search(f"{end}$", name) for name, end in zip(names, wanted, strict=True)), names
    (compiled,) = out.glob("*manylinux*.whl")
    with zipfile.ZipFile(compiled) as archive:
        (manifest,) = (name for name in archive.namelist() if name.endswith(f"/{MANIFEST}"))
        said = json.loads(archive.read(manifest))
        digests = {
            name: hashlib.sha256(
                archive.read(f"{manifest.removesuffix(MANIFEST)}{name}")
            ).hexdigest()
            for name in said["files"]
        }
    assert said["modules"] == list(COMPILED_MODULES)
    assert digests == said["files"], "auditwheel has changed them"
    assert {name.partition("/")[0] for name in said["sources"]} >= {"broker", "conf", "store"}
