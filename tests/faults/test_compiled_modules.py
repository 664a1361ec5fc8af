"""The programs of this room run the modules that the run means them to."""

from __future__ import annotations

import os
from pathlib import Path

from conf.compiled_modules import OFF, REQUIRED, VARIABLE
from tests.support.our_broker import OurBroker

SAID = {OFF: f"no module is a compiled one: {VARIABLE}=off", REQUIRED: "modules are compiled ones"}


def test_a_broker_here_says_what_it_runs(tmp_path: Path) -> None:
    with OurBroker(tmp_path).start() as broker:
        for log in ("broker", "remoting", "store", "ha", "namesrv"):
            assert SAID[os.environ[VARIABLE]] in broker.log(log), log
