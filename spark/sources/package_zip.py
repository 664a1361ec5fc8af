"""`python -m spark.sources.package_zip FILE.zip`: what executors need of this installation.

A program of the operator, who gives the zip to Spark with --py-files. It holds modules in Python
alone; the libraries that they import are installed on the executors (LIBRARIES). Knows the rooms
that the formats import, not what is in them.

Tested by tests/spark/sources/test_package_zip.py.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from conf.installation import INSTALL_DIRECTORY

ROOMS: Final = ("conf", "remoting", "spark", "store", "tools")
"""Directories with every module that the formats import."""
LIBRARIES: Final = ("pyarrow", "numpy", "msgspec", "selectors2", "zlib-ng", "lz4", "zstandard")
_WHEN: Final = (1980, 1, 1, 0, 0, 0)
"""Of every file: the same sources make the same zip."""


def write_zip(target: Path, home: Path = INSTALL_DIRECTORY) -> int:
    """Write the modules of the installation at `home` to `target`; how many. Raises OSError."""
    part = target.with_name(f"{target.name}.part")
    try:
        count = _write(part, home)
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return count


def _write(target: Path, home: Path) -> int:
    count = 0
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in modules(home):
            entry = zipfile.ZipInfo(str(path.relative_to(home)), _WHEN)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
            count += 1
    return count


def modules(home: Path) -> Iterator[Path]:
    """Files that go into the zip, in the order of their names."""
    for room in ROOMS:
        yield from sorted((home / room).rglob("*.py"))


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m spark.sources.package_zip",
        description="Writes the formats rocketmq* with all of this project that they import, for "
        "spark-submit --py-files FILE.zip or spark.sparkContext.addPyFile.",
        epilog=f"Executors need these besides: pip install {' '.join(LIBRARIES)}",
    )
    parser.add_argument("file", type=Path, help="a name that ends in .zip")
    target: Path = parser.parse_args(arguments).file
    if target.suffix != ".zip":
        parser.error(f"{target}: Spark takes a file for modules whose name ends in .zip")
    try:
        count = write_zip(target)
    except OSError as error:
        sys.stderr.write(f"package_zip: {target}: {error.strerror or error}\n")
        return 1
    sys.stdout.write(f"{target}: {count} modules; executors need besides: {', '.join(LIBRARIES)}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
