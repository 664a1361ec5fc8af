"""The part of docs/compatibility.md about reading bodies: the rules, and where ours differs.

The differences are those of the cases that the real fastjson answers for
(tests/support/loose_bodies.py), so that the document cannot leave one out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from remoting.remoting_serializable import dumps_java
from tests.support.loose_bodies import ABSENT, CASES, REFUSED, LooseBody, read_by_fastjson2

_HEAD: Final = """\
## How bodies are read

What ours writes is what Java writes. What clients, brokers and tools send is read as leniently as
RocketMQ's RemotingSerializable reads it (fastjson 1.2.69 in 4.9.8, 1.2.83 in 5.3.3): one reader for
every body, in broker, name server and tools (`remoting/body/json_bean.py`,
`remoting/java_casts.py`). Checked by `tests/interop/test_loose_bodies.py` against the jars; JSON
headers that are not as they should be are read by the same casts.

| written | read as |
|---|---|
| an enum by name, in any case; by ordinal as a number (`messageModel` 0 BROADCASTING, 1 CLUSTERING) | that value |
| an enum as null, any other text, a number in quotes; left out | null: a consumer is registered and does not count as broadcasting; a topic's filter type is SINGLE_TAG |
| an enum as a number out of range, a fraction, a boolean, an object | refused |
| an integer as text: `"5"`, `"+5"`, `"05"`, `"5.0"`, `"1,000"`; with a fraction, which is cut off; true and false | 5, 5, 5, 5, 1000; 1 and 0 |
| a boolean as `"true"`, `"TRUE"`, `"1"`, `"Y"`, `"T"`, 1, 1.5; as `"false"`, `"0"`, `"N"`, `"F"`, 0, 2 | true; false |
| a number or a boolean as `""`, `"null"`, `"NULL"` | as if left out |
| text as a number, a boolean, an object or a list | its text, the digits kept: `1.50` |
| a member left out, or null | the initial value of the Java class; `subVersion`: the time of reading |
| an unknown member | nothing |
| `GroupName`, `group_name`, `group-name`, `isUnitMode` | groupName, unitMode; the exact name comes first |
| one item where a list belongs; nulls within a list | a list of it; left out |
| map keys bare or quoted: `{0:5}`; objects as keys, or their text | the integer; the object |
| a byte order mark, comments, single quotes, bare names, superfluous commas, `+1`, `01`, `1.`, `5L`, `NaN`, `undefined`, `\\x41`, zero bytes at the end | as fastjson does |
| bytes that are not UTF-8 | U+FFFD in a body, as 4.9.8; refused in headers and files, as 5.3.3 does with headers |

Not as Java: the names that a body is about (clientID, clientId, groupName, consumerGroup, topic,
topicName, brokerName) have to be there, else code 1 names the missing one; for most of them Java's
NullPointerException has the same code. A field of extFields that is no number is refused, where
Java logs it and goes on without (not in sends and pulls). The names in a JSON header itself
(`code`, `extFields`) are taken as they are. Of two equal members the last one counts, which in Java
depends. Dates as text for numbers, `Set[…]`, and a semicolon for a comma are not read. What the
checked cases show beside:

| class | body | Java | ours |
|---|---|---|---|"""  # noqa: E501


_FASTJSON2: Final = """\

RocketMQ 5.5 reads with fastjson2 (2.0.59), and less: of the cases above it refuses {refused} that 4.9.8 or 5.3.3
reads, among them comments, single quotes, bare names, superfluous commas, a byte order mark, `"F"` and `"T"`. Ours goes
on reading them: clients of 4.9 and 5.3 write to the same broker. Where 5.5.0 reads something else than ours:

| class | body | 5.5.0 | ours |
|---|---|---|---|"""  # noqa: E501


def section() -> str:
    """The text."""
    others = [case for case in CASES if case.key in read_by_fastjson2()]
    refused = [case for case in others if case.read_by("5.5.0") == REFUSED]
    head = _FASTJSON2.format(refused=len(refused))
    return "\n".join((_HEAD, *_differences(), head, *_of_fastjson2(others)))


def _of_fastjson2(cases: Iterable[LooseBody]) -> Iterator[str]:
    for case in cases:
        read = case.read_by("5.5.0")
        if read not in (REFUSED, case.ours):
            shown = _shown(case, read), _shown(case, case.ours)
            body = case.text.decode(errors="replace")
            yield f"| {case.java_class} | `{body}` | {shown[0]} | {shown[1]} |"


def _differences() -> Iterator[str]:
    for case in CASES:
        if case.java != case.ours:
            java, ours = _shown(case, case.java), _shown(case, case.ours)
            yield f"| {case.java_class} | `{case.text.decode()}` | {java} | {ours} |"


def _shown(case: LooseBody, value: Any) -> str:
    if value == REFUSED:
        return "refused"
    if value == ABSENT:
        return f"{case.member} is null"
    return f"`{dumps_java(value).decode()}`"
