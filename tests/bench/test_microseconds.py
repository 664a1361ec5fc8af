"""The profile of bin/bench microseconds: which group a sample belongs to, and the lines."""

from __future__ import annotations

import pytest

from tests.bench.microseconds import Frame, group_of, grouped, lines, samples_of

KERNEL = "[kernel.kallsyms]"
COMPILED = "/srv/rocketmq_compiled/cpython-311/rocketmq_compiled__mypyc.so"
SCRIPT = """
\tffffffff81 copy_from_user+0x1b ([kernel.kallsyms])
\tffffffff82 __x64_sys_pwrite64+0x5 ([kernel.kallsyms])
\t    7f0a os_pwrite (/usr/bin/python3.11)

\t    55aa _PyObject_Malloc+0x20 (/usr/bin/python3.11)
""".splitlines()


def test_a_script_of_perf_is_cut_into_stacks() -> None:
    first, second = samples_of(SCRIPT)
    assert [frame.symbol for frame in first] == [
        "copy_from_user",
        "__x64_sys_pwrite64",
        "os_pwrite",
    ]
    assert second == [Frame("_PyObject_Malloc", "/usr/bin/python3.11")]
    assert grouped(SCRIPT) == {
        "pwrite to the log (kernel)": 1,
        "Python: making and freeing objects": 1,
    }


@pytest.mark.parametrize(
    ("stack", "group"),
    [
        ([("tcp_ack", KERNEL), ("__x64_sys_sendmsg", KERNEL)], "sending (kernel)"),
        ([("copy", KERNEL), ("__x64_sys_recvfrom", KERNEL)], "receiving (kernel)"),
        ([("exc_page_fault", KERNEL)], "kernel, the rest: interrupts, page faults"),
        (
            [("json_decode", "/venv/msgspec/_core.cpython-311-x86_64-linux-gnu.so")],
            "header decoding (msgspec)",
        ),
        ([("CPyDef_send_records___SendRecords___add", COMPILED)], "making records"),
        ([("CPyDef_selector_loop___SelectorLoop___turn", COMPILED)], "the loop and its counts"),
        ([("CPyDict_GetItem", COMPILED)], "compiled modules, the rest"),
        (
            [("_PyEval_EvalFrameDefault", "/usr/bin/python3.11")],
            "Python: modules that are not compiled",
        ),
        ([("memcpy", "/lib/x86_64-linux-gnu/libc.so.6")], "C library: copies, allocation"),
        ([("x", "/lib/other.so")], "elsewhere"),
    ],
)
def test_a_sample_has_a_group(stack: list[tuple[str, str]], group: str) -> None:
    assert group_of([Frame(*each) for each in stack]) == group


def test_shares_become_microseconds() -> None:
    found = lines({"making records": 1, "sending (kernel)": 3}, 8.0)
    assert [line.split()[:2] for line in found] == [
        ["8.00", "all,"],
        ["6.00", "75%"],
        ["2.00", "25%"],
        ["2.00", "without"],
    ]
    assert "*" in found[1]
    assert "*" not in found[2]
