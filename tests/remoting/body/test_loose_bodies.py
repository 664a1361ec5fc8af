"""Bodies that are not as they should be, read as Java reads them."""

from __future__ import annotations

import pytest

from remoting.errors import BodyError
from tests.support.loose_bodies import CASES, REFUSED, LooseBody, normalized


@pytest.mark.parametrize("case", CASES, ids=str)
def test_ours_reads_what_java_reads(case: LooseBody) -> None:
    if case.ours == REFUSED:
        with pytest.raises(BodyError, match=case.java_class):
            case.cls.from_json_bytes(case.text)
        return
    written = case.cls.from_json_bytes(case.text).to_json_bytes()
    assert normalized(case.seen(written)) == normalized(case.ours)
