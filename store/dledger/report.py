"""What an import says to people, as lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from store.dledger.import_run import DledgerImport, config_files
from store.dledger.source_queues import is_topic, read_queue_ends

_BUILT_ANEW = ("consumequeue", "index", "checkpoint", "timerwheel", "timerlog")
_LEFT_OUT = {
    "compaction/compactionLog": "what a compaction topic kept of expired log files is lost",
    "consumequeue_ext": "extension files of consume queues are not available",
    "batchconsumequeue": "built anew from the log; queues without messages begin at 0",
}


def report(run: DledgerImport) -> Iterator[str]:
    """After `look`."""
    survey, source = run.survey, run.source
    yield f"{source.root}: {survey.records} messages, {survey.size} bytes of records" + (
        f", {survey.of_old_log} of them in the commit log from before DLedger"
        if survey.of_old_log
        else ""
    )
    for (topic, queue_id), found in sorted(survey.queues.items()):
        offsets = f"queue offsets {found.first} to {found.end - 1}"
        yield f"  {topic} {queue_id}: {found.count} messages, {offsets}"
    for topic, queue_id, end in read_queue_ends(source.root / "consumequeue"):
        known = survey.queues.get((topic, queue_id))
        if known is None:
            yield f"  {topic} {queue_id}: no message any more, its next queue offset is {end}"
    yield from _committed(run)
    yield from survey.damaged.lines(
        "damaged, to be left out" if run.options.skip_damaged else "DAMAGED"
    )
    yield from survey.jumps.lines(
        "queue offsets that are not the next of their queue, kept as they are"
    )
    if run.group.healed:
        yield f"taken from other nodes: {run.group.healed} entries, damaged in {source.root}"
    if survey.end is not None and survey.end.reason:
        yield (
            f"{source.place(survey.end.pos)}: behind the last entry: {survey.end.reason}; not a "
            "whole entry of this log, nobody was told that it was stored"
        )
    leader = source.find_leader()
    if leader not in (None, source.node):
        yield (
            f"the last leader was {leader}, not {source.node}: consumer offsets in its config/ "
            f"may be newer; import from {leader} if its log is as new"
        )
    yield from _left_out(source.root)


def _committed(run: DledgerImport) -> Iterator[str]:
    last, known = run.group.last, run.source.committed_index
    if last is None:
        return
    yield f"entries up to {last.index} of term {last.term}, here known as committed up to {known}"
    majority = run.majority_end
    if majority is None:
        yield (
            "  one node cannot know what its group has committed: all that it has is imported. A "
            "message that another node has, and this one lacks, is not; one that never was "
            "committed may be. Name the other nodes with --other to know"
        )
    elif run.options.majority_only:
        yield f"  a majority has them up to {majority.index}: {run.dropped} behind it are left out"
    elif majority.index < last.index:
        yield (
            f"  a majority has them up to {majority.index}; {last.index - majority.index} more are "
            "imported, as this node, if it was elected, would have committed them, too"
        )
    else:
        yield "  a majority has them all"


def _left_out(root: Path) -> Iterator[str]:
    rebuilt = [name for name in _BUILT_ANEW if (root / name).exists()]
    if rebuilt:
        yield f"built anew from the log at the broker's first start: {', '.join(rebuilt)}"
    for name, text in _LEFT_OUT.items():
        if (root / name).is_dir() and any(path.is_file() for path in (root / name).rglob("*")):
            yield f"left out: {root / name}: {text}"
    for path in sorted((root / "consumequeue").glob("*")):
        if not is_topic(path):
            yield f"left out: {path}: not the queues of a topic"
    copied = {path.name for path in config_files(root)}
    config = root / "config"
    for path in sorted(config.iterdir()) if config.is_dir() else []:
        if path.name not in copied:
            yield f"left out: {path}: not a table of a broker whose configManagerVersion is v1"
