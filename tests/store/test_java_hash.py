from __future__ import annotations

import json
from pathlib import Path

import pytest

from store.java_hash import index_key_hash, string_hash, tags_code

GOLDEN = Path(__file__).parents[1] / "golden" / "store-G"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("TagA", 2598919),
        ("polygenelubricants", -(1 << 31)),
        ("é", 0xE9),
        ("😀", 0xD83D * 31 + 0xDE00),
        ("The quick brown fox jumps over the lazy dog", -609428141),
    ],
)
def test_string_hash_is_javas(text: str, expected: int) -> None:
    assert string_hash(text) == expected


def test_index_hash_is_absolute_and_min_value_is_zero() -> None:
    assert index_key_hash("polygenelubricants") == 0
    text = "The quick brown fox jumps over the lazy dog"
    assert index_key_hash(text) == 609428141


def test_tags_code_of_golden_records() -> None:
    records = json.loads((GOLDEN / "records-master.json").read_text())
    messages = [record for record in records if record["kind"] == "message"]
    assert len(messages) == 55
    for record in messages:
        assert tags_code(record["properties"].get("TAGS")) == record["tagsHashCode"]


def test_key_hashes_of_the_golden_index() -> None:
    index = json.loads((GOLDEN / "index-decoded.json").read_text())
    index = index[0] if isinstance(index, list) else index
    records = json.loads((GOLDEN / "records-master.json").read_text())
    by_offset = {record["phyOffset"]: record for record in records if "topic" in record}
    hashes = {(entry["phyOffset"], entry["keyHash"]) for entry in index["entries"][1:]}
    for offset, record in by_offset.items():
        keys = [record["properties"].get("UNIQ_KEY"), *record["properties"].get("KEYS", "").split()]
        for key in filter(None, keys):
            assert (offset, index_key_hash(f"{record['topic']}#{key}")) in hashes
