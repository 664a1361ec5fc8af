"""`python -m adopt`: the program bin/mqadopt."""

from __future__ import annotations

import sys

from adopt.command_line import main, run

__all__ = ["run"]

if __name__ == "__main__":
    sys.exit(main())
