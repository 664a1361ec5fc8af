"""Which modules the tests run: those of the sources, or with bin/test --compiled the compiled ones.

Imported by tests/conftest.py before any module of the product: package `broker` decides when it is
imported. Programs that tests start inherit the variable.
"""

from __future__ import annotations

import os

from conf.compiled_modules import OFF, VARIABLE

os.environ.setdefault(VARIABLE, OFF)

import broker as broker
