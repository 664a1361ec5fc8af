"""`python -m console`: the console in the browser."""

from __future__ import annotations

import sys

from console.command_line import main, run

__all__ = ["run"]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
