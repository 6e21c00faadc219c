"""Reading of trace files: the content of a file shows if it is our own or torch.profiler's."""

import gc
import os
import pathlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ddpkit.errors import TraceError
from ddpkit.trace.base import RECORDED, BaseTrace
from ddpkit.trace.files import chrome, disk, kineto, own
from ddpkit.trace.files.kineto import Recording
from ddpkit.trace.files.profiled import spans_of
from ddpkit.trace.peers import match_peers
from ddpkit.trace.span import Scalar, Span

Path = str | os.PathLike[str]


def read(paths: Sequence[Path]) -> BaseTrace:
    """Return the trace in one file of `Trace.save`, or in torch.profiler's files, one per rank.

    Raises TraceError for files of any other kind.
    """
    with _no_search_for_garbage():
        return _read(paths)


@contextmanager
def _no_search_for_garbage() -> Iterator[None]:
    """Switch the garbage collector off inside a ``with`` block.

    The block makes millions of objects and keeps them all, so a search would find no garbage.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _read(paths: Sequence[Path]) -> BaseTrace:
    if not paths:
        raise TraceError(
            "no trace file was named: name one saved file, or the profiler's file of each rank"
        )
    paths = [file for path in paths for file in _files(path)]
    recordings: list[Recording] = []
    alone = len(paths) == 1
    for path in paths:
        top = disk.read_json(path, kineto.thin)
        if own.is_saved(top):
            if not alone:
                raise TraceError(
                    f"{path} is a trace of all ranks, saved by ddpkit: name only this file"
                )
            return _saved(top, path)
        if chrome.has_all_ranks(top):
            raise TraceError(
                f"{path} is an export for Perfetto, which lacks data that a trace needs: name "
                "the file that Trace.save wrote"
            )
        if not kineto.is_recording(top):
            raise TraceError(
                f"{path} is neither a trace saved by ddpkit nor a recording of torch.profiler "
                "(export_chrome_trace): name one of these two"
            )
        recordings.append(kineto.parse(top, str(path), alone=alone))
    return merge(recordings)


def _files(path: Path) -> list[Path]:
    """Return the trace files of a path: the file itself, or the files of a folder.

    `tensorboard_trace_handler` writes folders.
    """
    folder = pathlib.Path(path)
    if not folder.is_dir():
        return [path]
    found = sorted(each for each in folder.iterdir() if each.name.endswith((".json", ".json.gz")))
    if not found:
        raise TraceError(
            f"the folder {path} has no trace file (.json or .json.gz): name the folder of one run, "
            "or the file of each rank"
        )
    return [*found]


def _saved(top: object, path: Path) -> BaseTrace:
    try:
        return own.parse(top)
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None


def merge(recordings: Sequence[Recording]) -> BaseTrace:
    """Return one trace from the recordings of a job's ranks; recordings of some may be missing."""
    _check_they_fit(recordings)
    first = recordings[0]
    spans = [span for recording in recordings for span in spans_of(recording)]
    present = {recording.rank for recording in recordings}
    facts: dict[str, Scalar] = {
        "backend": next((r.backend for r in recordings if r.backend), ""),
        "device": "cuda" if any(r.has_gpu for r in recordings) else "cpu",
        "recorded_by": "torch.profiler",
    }
    hosts = {recording.host for recording in recordings}
    if len(hosts) > 1:
        facts["hosts"] = len(hosts)
    if len(present) < first.world_size:
        facts[RECORDED] = ", ".join(map(str, sorted(present)))
    numbered = _numbered(spans, one_group=first.groups <= 1)
    return BaseTrace(match_peers(numbered), first.world_size, facts)


def _check_they_fit(recordings: Sequence[Recording]) -> None:
    by_rank: dict[int, Recording] = {}
    first = recordings[0]
    for each in recordings:
        if each.world_size != first.world_size:
            raise TraceError(
                f"{first.path} comes from a job of {first.world_size} ranks, {each.path} from "
                f"a job of {each.world_size}: name the files of one run"
            )
        if each.rank in by_rank:
            raise TraceError(
                f"{by_rank[each.rank].path} and {each.path} both come from rank "
                f"{each.rank}: name one file per rank"
            )
        by_rank[each.rank] = each


def _numbered(spans: Sequence[Span], *, one_group: bool) -> list[Span]:
    """Return the spans with a ``seq`` for each collective that has none.

    The k-th collective of a name gets the same ``seq`` on every rank. ``seq`` stays None if some
    ranks have more collectives of the name than other ranks, because the missing collectives cannot
    be identified. ``seq`` also stays None if the job had several groups and the recording does not
    name the group, as with gloo.
    """
    rows: dict[tuple[str, str], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i, span in enumerate(spans):
        if span.is_collective and span.seq is None and (span.group or one_group):
            rows[span.group, span.name][span.rank].append(i)
    numbered = list(spans)
    for ranks in rows.values():
        if len({len(each) for each in ranks.values()}) == 1:
            for each in ranks.values():
                for seq, i in enumerate(sorted(each, key=lambda i: spans[i].start_ns)):
                    numbered[i] = replace(spans[i], seq=seq)
    return numbered
