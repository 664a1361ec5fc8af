"""The broker: every feature lives here, above the rooms that know bytes, files and frames.

Rules of the room: managers hold state and know no connection's bytes; services own threads;
processors answer request codes and get the few objects they use through their constructor;
`broker_controller` and `processes` only wire. Imports conf, remoting, store and ha; nothing
imports broker.

Importing it decides whether this process runs compiled modules (conf/compiled_modules.py): that
has to be known before any of them is imported, and every process of a broker imports this package
first.
"""

from __future__ import annotations

import os

from conf.compiled_modules import CompiledModulesError, use_compiled_modules

try:
    use_compiled_modules(os.environ)
except CompiledModulesError as error:
    raise SystemExit(f"broker: {error}") from error
