"""Completion of mqadmin in bash and zsh: bash itself runs what `_MQADMIN_COMPLETE` prints."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tools.command_table import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
ASK_BASH = """
eval "$(_MQADMIN_COMPLETE=bash_source mqadmin)" || exit 1
complete -p mqadmin >&2 || exit 1
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMPREPLY=()
_mqadmin_completion "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With an mqadmin on the PATH that is this checkout's."""
    program = tmp_path / "mqadmin"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tools.mqadmin "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    return {"PATH": path, "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8", "HOME": str(tmp_path)}


def completed(environment: dict[str, str], *words: str) -> list[str]:
    """What bash offers for the last word."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    result = subprocess.run(
        [bash, "--norc", "-c", ASK_BASH, "bash", "mqadmin", *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "_mqadmin_completion" in result.stderr
    return result.stdout.split()


def test_bash_completes_commands(environment: dict[str, str]) -> None:
    assert completed(environment, "sendM") == ["sendMsgStatus", "sendMessage"]
    assert completed(environment, "clusterl") == ["clusterList"]
    assert set(completed(environment, "")) == {*COMMANDS, "help"}


def test_bash_completes_options(environment: dict[str, str]) -> None:
    assert completed(environment, "haStatus", "--j") == ["--json"]
    offered = completed(environment, "sendMessage", "-t", "Hello", "--")
    assert {"--body", "--key", "--tags", "--namesrvAddr"} <= set(offered)


def test_bash_completes_what_help_explains(environment: dict[str, str]) -> None:
    assert completed(environment, "help", "topicRo") == ["topicRoute"]


def test_zsh_gets_each_command_with_its_description(environment: dict[str, str]) -> None:
    asked = {"COMP_WORDS": "mqadmin clusterL", "COMP_CWORD": "1"}
    result = subprocess.run(
        ["mqadmin"],
        executable=str(Path(environment["HOME"]) / "mqadmin"),
        env={**environment, **asked, "_MQADMIN_COMPLETE": "zsh_complete"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    description = COMMANDS["clusterList"].description
    assert result.stdout.splitlines() == ["plain", "clusterList", description]


def test_zsh_gets_its_script(environment: dict[str, str]) -> None:
    result = subprocess.run(
        ["mqadmin"],
        executable=str(Path(environment["HOME"]) / "mqadmin"),
        env={**environment, "_MQADMIN_COMPLETE": "zsh_source"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert result.stdout.startswith("#compdef mqadmin")
