"""A SPARK_HOME whose `work` is elsewhere: what local-cluster mode writes stays with its test.

Spark's workers keep files of each application in SPARK_HOME/work, which is within the installed
pyspark. SPARK_WORKER_DIR moves it for the workers of a standalone cluster only, not for those that
local-cluster mode starts within the driver.
"""

from __future__ import annotations

from pathlib import Path

import pyspark


def scratch_home(directory: Path) -> Path:
    """A new directory within `directory` that has everything of pyspark but its work."""
    home = directory / "spark-home"
    home.mkdir(parents=True, exist_ok=True)
    for each in Path(pyspark.__file__).parent.iterdir():
        link = home / each.name
        if each.name != "work" and not link.is_symlink():
            link.symlink_to(each)
    return home
