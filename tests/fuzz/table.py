"""The table of all targets: their names, and where each row is.

A row's module is imported when it is asked for: coverage is traced in what is imported then.
"""

from __future__ import annotations

import importlib
from typing import Final

from tests.fuzz.target import Target

MODULES: Final = {
    "frames": "remoting_rows",
    "json-header": "remoting_rows",
    "binary-header": "remoting_rows",
    "requests": "broker_rows",
    "requests-acl": "broker_rows",
    "namesrv": "namesrv_rows",
    "ha-reports": "ha_rows",
    "ha-frames": "ha_rows",
    "ha-hello": "ha_rows",
    "ha-controller-mode": "member_rows",
    "ha-controller-door": "autoswitch_rows",
    "ha-controller-link": "autoswitch_rows",
    "member": "member_rows",
    "properties": "file_rows",
    "yaml": "file_rows",
    "plain-acl": "file_rows",
    "config-tables": "file_rows",
    "store-files": "file_rows",
    "records": "store_rows",
    "recovery": "store_rows",
    "queue-files": "store_rows",
    "sql92": "filter_rows",
    "metrics-http": "metrics_rows",
    "metrics-labels": "metrics_rows",
    "dump-lines": "report_rows",
    "mqadmin": "mqadmin_rows",
}
"""Target to module, in the order of `--all`."""


def find_target(name: str) -> Target:
    """The row called `name`. Raises KeyError."""
    module = importlib.import_module(f"tests.fuzz.{MODULES[name]}")
    return next(row for row in module.ROWS if row.name == name)
