"""tools.prepare_venv and the launchers, without a network: pip is a script that notes its call."""

from __future__ import annotations

import configparser
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conf.compiled_modules import ROOMS
from tools import prepare_venv

ROOT = Path(__file__).resolve().parents[2]
_FAKE_PYTHON = """#!/bin/sh
case "$*" in
  *"pip install"*) echo "$*" >> {log}; echo "Collecting x>=1"; {outcome} ;;
  "-c import pip") exit 0 ;;
  *) exec {python} "$@" ;;
esac
"""


def fake_venv(directory: Path, outcome: str = "exit 0") -> Path:
    """A virtual environment whose pip only writes its arguments into `calls`."""
    venv = directory / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    python = venv / "bin" / "python"
    text = _FAKE_PYTHON.format(log=directory / "calls", outcome=outcome, python=sys.executable)
    python.write_text(text)
    python.chmod(0o755)
    return venv


def calls(directory: Path) -> list[str]:
    path = directory / "calls"
    return path.read_text().splitlines() if path.exists() else []


def run(venv: Path, *extras: str) -> int:
    options = [word for extra in extras for word in ("--extra", extra)]
    return prepare_venv.main(["--venv", str(venv), "--program", "mq", *options])


def test_installs_once_and_again_for_an_extra(tmp_path: Path) -> None:
    venv = fake_venv(tmp_path)
    assert [run(venv), run(venv)] == [0, 0]
    assert len(calls(tmp_path)) == 1
    assert "msgspec" in calls(tmp_path)[0]
    assert "pytest" not in calls(tmp_path)[0]
    assert [run(venv, "dev"), run(venv, "dev"), run(venv)] == [0, 0, 0]
    assert len(calls(tmp_path)) == 2
    assert "pytest" in calls(tmp_path)[1]


def test_changed_requirements_are_installed_again(tmp_path: Path) -> None:
    venv = fake_venv(tmp_path)
    prepare_venv.prepare(venv, {"base": ["a"]}, "mq")
    prepare_venv.prepare(venv, {"base": ["a", "b >= 2"]}, "mq")
    assert [line.rpartition("--retries 2 ")[2] for line in calls(tmp_path)] == ["a", "a b >= 2"]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("ERROR: No matching distribution found for x", "is there a network?"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("ERROR: one\nERROR: two", "pip failed: ERROR: two"),
    ],
)
def test_failure_is_one_line_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str, words: str
) -> None:
    message = tmp_path / "message"
    message.write_text(output + "\n")
    venv = fake_venv(tmp_path, f"cat {message}; exit 1")
    assert run(venv) == 1
    printed = capsys.readouterr()
    assert words in printed.err.splitlines()[-1]
    assert str(venv / "pip.log") in printed.err.splitlines()[-1]
    assert output in (venv / "pip.log").read_text()
    assert printed.out == ""
    assert run(venv) == 1  # not taken for ready


def test_a_directory_with_other_files_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious").write_text("")
    assert run(tmp_path) == 1
    assert "is not a virtual environment" in capsys.readouterr().err
    assert (tmp_path / "precious").exists()


def test_an_interpreter_that_this_user_may_not_look_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    venv = fake_venv(tmp_path)
    monkeypatch.setattr(Path, "exists", refuse)
    assert run(venv) == 1
    assert capsys.readouterr().err == (
        f"mq: cannot use {venv}/bin/python: Permission denied; make its target readable"
        " for this user, or set BROKER_VENV to a directory of your own\n"
    )


def test_a_new_environment_has_a_pip_that_works(tmp_path: Path) -> None:
    """Unpacked, not installed; on a Python whose pip is elsewhere ensurepip installs it."""
    venv = tmp_path / "venv"
    prepare_venv._create(venv, "mq")
    assert prepare_venv._is_usable(venv)
    told = subprocess.run(
        [venv / "bin/python", "-m", "pip", "--version"], capture_output=True, text=True, check=True
    )
    assert told.stdout.startswith("pip ")
    assert str(venv) in told.stdout
    assert not (venv / "pip.part").exists()


def test_without_a_wheel_of_pip_ensurepip_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(prepare_venv, "find_pip_wheel", lambda: None)
    monkeypatch.setattr(prepare_venv, "_run", lambda command: asked.append(list(command)))
    prepare_venv._create(tmp_path / "venv", "mq")
    assert [command[1:3] for command in asked] == [["-m", "venv"], ["-m", "ensurepip"]]


def test_a_full_disk_while_pip_is_unpacked_leaves_no_half_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rename = Path.rename

    def once(path: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", refuse)
        return rename(path, target)

    def refuse(_path: Path, _target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "rename", once)
    assert run(tmp_path / "venv") == 1
    assert "No space left on device; on Debian and Ubuntu" in capsys.readouterr().err
    assert not prepare_venv._is_usable(tmp_path / "venv"), "made anew by the next start"


def test_modules_of_the_broker_are_compiled_meanwhile_by_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(prepare_venv.ROOMS) == {*ROOMS, "namesrv"}
    for room in prepare_venv.ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "one.py").write_text("")
    monkeypatch.setattr(prepare_venv, "PROJECT", tmp_path)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    with prepare_venv._own_bytecode(is_wanted=True):
        pass
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE")
    with prepare_venv._own_bytecode(is_wanted=False):
        pass
    assert list(tmp_path.glob("*/__pycache__")) == []
    with prepare_venv._own_bytecode(is_wanted=True):
        pass
    assert len(list(tmp_path.glob("*/__pycache__/one.*.pyc"))) == len(prepare_venv.ROOMS)


def checkout(directory: Path) -> Path:
    """A checkout whose `broker` prints how it was started."""
    root = directory / "with space"
    shutil.copytree(ROOT / "bin", root / "bin")
    (root / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "prepare_venv.py", root / "tools")
    shutil.copy(ROOT / "setup.cfg", root)
    (root / "broker").mkdir()
    (root / "broker" / "__main__.py").write_text(
        "import os, sys\nprint(sys.argv[1:], os.getcwd(), os.environ['ROCKETMQ_HOME'])\n"
    )
    return root


def launch(program: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ROCKETMQ", "BROKER"))}
    return subprocess.run(
        [program, *arguments],
        env=inherited | environment,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )


def test_launcher_finds_its_home_through_links(tmp_path: Path) -> None:
    root = checkout(tmp_path)
    venv = fake_venv(tmp_path)
    (tmp_path / "one").symlink_to("with space/bin/mqbroker")
    (tmp_path / "two").symlink_to("one")
    first = launch(tmp_path / "two", "-n", "a b;c", BROKER_VENV=str(venv))
    assert first.stdout == f"['-n', 'a b;c'] / {root}\n"
    second = launch(tmp_path / "two", BROKER_VENV=str(venv), ROCKETMQ_HOME="/opt/mq")
    assert second.stdout == "[] / /opt/mq\n"
    assert second.stderr == ""
    assert len(calls(tmp_path)) == 1


def test_launcher_says_what_is_missing(tmp_path: Path) -> None:
    root = checkout(tmp_path)
    tools = tmp_path / "tools-of-another-machine"
    tools.mkdir()
    for name, text in (("uname", "echo Darwin"), ("python3", "exit 1")):
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    path = {"PATH": f"{tools}:{os.environ['PATH']}"}
    done = launch(root / "bin" / "mqbroker", **path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("mqbroker: needs Linux, this is Darwin")
    done = launch(root / "bin" / "mqbroker", BROKER_PYTHON=str(tools / "python3"))
    assert done.stderr.startswith("mqbroker: needs Python 3.11 or newer (too old or broken:")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize("is_ready", [False, True], ids=["first-use", "ready"])
@pytest.mark.parametrize(
    ("program", "code"), [("mqbroker", 1), ("mqadmin", 1), ("mqreport", 3), ("test", 1)]
)
def test_a_broker_python_that_does_not_exist_is_named(
    tmp_path: Path, program: str, code: int, is_ready: bool
) -> None:
    """At once, and before anything is installed; also where the environment is there already."""
    root = checkout(tmp_path)
    venv = fake_venv(tmp_path) if is_ready else tmp_path / "none"
    named = tmp_path / "no such" / "python3.12"
    done = launch(root / "bin" / program, BROKER_PYTHON=str(named), BROKER_VENV=str(venv))
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == (
        f"{program}: BROKER_PYTHON is {named}, and there is no such program: set it to the path of "
        "a Python 3.11 or newer, or unset it to have one looked for\n"
    )
    assert not (tmp_path / "none").exists()


def test_a_broker_python_may_have_spaces_in_its_path(tmp_path: Path) -> None:
    root = checkout(tmp_path)
    python = tmp_path / "a python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    venv = str(tmp_path / "none")
    done = launch(root / "bin" / "mqbroker", BROKER_PYTHON=str(python), BROKER_VENV=venv)
    assert f"(too old or broken: {python})" in done.stderr


def test_an_environment_with_another_python_than_wanted_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "python9.9"
    other.write_text("#!/bin/sh\necho 9.9\n")
    other.chmod(0o755)
    prepare_venv.report_other_python(tmp_path / "venv", "mqbroker", sys.executable)
    prepare_venv.report_other_python(tmp_path / "venv", "mqbroker", "")
    assert capfd.readouterr().err == ""
    prepare_venv.report_other_python(tmp_path / "venv", "mqbroker", str(other))
    here = ".".join(map(str, sys.version_info[:2]))
    assert capfd.readouterr().err == (
        f"mqbroker: {tmp_path / 'venv'} was made with Python {here}, which is used; BROKER_PYTHON "
        "is 9.9: remove that directory to have it made again\n"
    )


@pytest.mark.parametrize(
    "program",
    [
        "mqbroker",
        "mqbrokercontainer",
        "mqnamesrv",
        "mqadmin",
        "mqreport",
        "mqshutdown",
        "mqchaos",
        "mqadopt",
    ],
)
def test_every_launcher_tells_its_version(tmp_path: Path, program: str) -> None:
    """Without a Python, let alone an environment."""
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    nothing = {"BROKER_VENV": str(tmp_path / "none"), "BROKER_PYTHON": "/nowhere/python"}
    told = launch(checkout(tmp_path) / "bin" / program, "--version", **nothing)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout == f"{program} {config['metadata']['version']}\n"
    assert not (tmp_path / "none").exists()
