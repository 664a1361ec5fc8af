"""Files of this machine as the report's stages see them, and directories as runs leave them."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

from spark.job.results import summary_path


class LocalFiles:
    """What HadoopFiles does, on this machine."""

    def exists(self, path: str) -> bool:
        return Path(path).exists()

    def names(self, path: str) -> list[str]:
        return sorted(entry.name for entry in Path(path).iterdir()) if self.exists(path) else []

    def read_text(self, path: str) -> str:
        return Path(path).read_text(encoding="utf-8")

    def write(self, path: str, content: bytes) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content)

    def replace(self, path: str, content: bytes) -> None:
        self.write(path, content)

    def delete(self, path: str) -> None:
        Path(path).unlink(missing_ok=True)


def dumps(root: Path, *dates: str) -> str:
    for date in dates:
        (root / f"dt={date}").mkdir(parents=True)
    return str(root)


def report(out: Path, date: str, seconds: float = 86_400, exit_code: int = 0) -> None:
    path = Path(summary_path(str(out), datetime.date.fromisoformat(date)))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"window": {"seconds": seconds}, "exit_code": exit_code}))
