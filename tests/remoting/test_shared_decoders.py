"""Types whose first use is by many threads at once: without the lock the process dies."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from conf.installation import INSTALL_DIRECTORY
from remoting.shared_decoders import decoder_of

_RACE = '''
import sys, threading, types
import msgspec
from remoting.shared_decoders import decoder_of, learnt

SOURCE = """from __future__ import annotations
import msgspec
class Inner(msgspec.Struct):
    number: int
    text: str
class Outer(msgspec.Struct):
    inner: list[Inner]
    number: int = 0
"""
TEXT = b'{"number":1,"inner":[{"number":1,"text":"x"}]}'
sys.setswitchinterval(1e-6)
for number in range(100):
    module = types.ModuleType(f"race{number}")
    sys.modules[module.__name__] = module
    exec(compile(SOURCE, module.__name__, "exec"), module.__dict__)
    if sys.argv[1] == "convert":
        learnt(module.Outer)
    barrier = threading.Barrier(3)

    def decode():
        barrier.wait()
        for _ in range(3):
            if sys.argv[1] == "convert":
                read = msgspec.convert(msgspec.json.decode(TEXT), module.Outer)
            else:
                read = decoder_of(module.Outer).decode(TEXT)
            assert read.inner[0].text == "x"

    threads = [threading.Thread(target=decode) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
print("alive")
'''


class Numbers(msgspec.Struct):
    number: int


@pytest.mark.parametrize("how", ["decode", "convert"])
def test_many_threads_that_are_the_first(how: str) -> None:
    command = [sys.executable, "-c", _RACE, how]
    done = subprocess.run(
        command, cwd=INSTALL_DIRECTORY, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "alive"), done.stderr


def test_the_same_one_by_type_and_strictness() -> None:
    assert decoder_of(Numbers) is decoder_of(Numbers)
    assert decoder_of(Numbers, strict=False).decode(b'{"number":"1"}') == Numbers(1)
    assert decoder_of(Numbers) is not decoder_of(Numbers, strict=False)
