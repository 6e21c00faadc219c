"""Random mutations of a valid recording give a trace, or an error of one sentence."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpkit.errors import TraceError
from ddpkit.simulate import forecast
from ddpkit.trace import Trace
from ddpkit.trace.files.graph import rank_graph
from ddpkit.trace.intervals import total
from ddpkit.view import timeline_model
from ddpkit.view.drawing.changes import changes
from tests.properties import examples
from tests.trace.recordings import event, gpu_step, of_rank

Mutation = Callable[[random.Random, list[dict[str, Any]]], None]
UNIX_US = 1_661_203_462_598_738


def job() -> list[dict[str, Any]]:
    """Return the files of two ranks, of 6 steps each."""
    copy = event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1542, 30, 7, bytes=10)
    steps = [each for n in range(6) for each in gpu_step(n)] + [copy]
    return [json.loads(json.dumps(of_rank(rank, 2, *steps, backend="nccl"))) for rank in (0, 1)]


def one(rng: random.Random, tops: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a random event of a random file."""
    events: list[dict[str, Any]] = rng.choice(tops)["traceEvents"]
    return rng.choice(events) if events else {"args": {}}


def missing(rng: random.Random, tops: list[dict[str, Any]]) -> None:
    event = one(rng, tops)
    event.pop(rng.choice([*event]), None)


def missing_events(rng: random.Random, tops: list[dict[str, Any]]) -> None:
    top, share = rng.choice(tops), rng.random()
    top["traceEvents"] = [event for event in top["traceEvents"] if rng.random() < share]


def missing_category(rng: random.Random, tops: list[dict[str, Any]]) -> None:
    cat = one(rng, tops).get("cat")
    for top in tops:
        top["traceEvents"] = [event for event in top["traceEvents"] if event.get("cat") != cat]


def renamed(rng: random.Random, tops: list[dict[str, Any]]) -> None:
    event, odd = (
        one(rng, tops),
        ["", "nccl", "ProfilerStep#", "Optimizer.step#", "\x1b[2J", "kernel"],
    )
    event[rng.choice(["name", "cat", "ph"])] = rng.choice(odd)


def renamed_top(rng: random.Random, tops: list[dict[str, Any]]) -> None:
    top = rng.choice(tops)
    key = rng.choice([*top])
    top[key.upper()] = top.pop(key)


def duplicated(rng: random.Random, tops: list[dict[str, Any]]) -> None:
    rng.choice(tops)["traceEvents"] += [dict(one(rng, tops)) for _ in range(rng.randrange(1, 40))]


def unsorted(rng: random.Random, tops: list[dict[str, Any]]) -> None:
    rng.shuffle(rng.choice(tops)["traceEvents"])


def a_number(rng: random.Random, tops: list[dict[str, Any]]) -> None:
    odd = [
        -1,
        0,
        -1e9,
        float("nan"),
        float("inf"),
        1e308,
        10**400,
        1e-300,
        UNIX_US,
        None,
        "12",
        True,
    ]
    one(rng, tops)[rng.choice(["ts", "dur"])] = rng.choice(odd)


def a_fact(rng: random.Random, tops: list[dict[str, Any]]) -> None:
    args = one(rng, tops).get("args") or {}
    if args:
        args[rng.choice([*args])] = rng.choice([None, -1, 10**30, "x", [], {}, float("nan"), True])


def times_ten(rng: random.Random, tops: list[dict[str, Any]]) -> None:
    top, field = rng.choice(tops), rng.choice(["ts", "dur"])
    for each in top["traceEvents"]:
        if isinstance(each.get(field), int | float):
            each[field] *= 10


def in_unix_time(rng: random.Random, tops: list[dict[str, Any]]) -> None:
    for each in rng.choice(tops)["traceEvents"]:
        if isinstance(each.get("ts"), int | float):
            each["ts"] += UNIX_US


MUTATIONS: list[Mutation] = [
    missing, missing_events, missing_category, renamed, renamed_top, duplicated, unsorted, a_number,
    a_fact, times_ten, in_unix_time,
]  # fmt: skip


@examples(200)
@given(
    chosen=st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
    kept=st.floats(0.2, 5),
)
def test_a_mutated_recording_is_a_trace_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, chosen: list[Mutation], seed: int, kept: float
) -> None:
    """A share ``kept`` of the second file's text remains; from 1 on, all of it."""
    rng, tops = random.Random(seed), job()
    for mutation in sorted(chosen, key=lambda each: each is renamed_top):
        mutation(rng, tops)
    folder = tmp_path_factory.mktemp("mutated")
    for number, top in enumerate(tops):
        text = json.dumps(top)
        text = text[: int(kept * len(text))] if number else text
        (folder / f"{number}.json").write_text(text)
    sentence_or(lambda: looked_at(Trace.load(folder), folder))


def looked_at(trace: Trace, folder: Path) -> None:
    """Use a trace in each way in which the commands use traces."""
    for part in trace.breakdown().values():
        parts = (part.compute_only_ns, part.overlapped_ns, part.exposed_ns, part.idle_ns)
        parts += (part.copy_ns,)
        assert min(parts) >= 0
        assert sum(parts) == part.step_ns
    assert timeline_model(trace, short=True).text
    for k in range(trace.steps):
        assert trace.step(k).duration_ms >= 0
    trace.save(folder / "saved.json.gz")
    assert Trace.load(folder / "saved.json.gz") == trace
    sentence_or(lambda: forecast(trace).replay())
    assert changes((trace, trace), ("a", "b")).text()
    for rank in trace.recorded_ranks:
        nodes = rank_graph(trace, rank)
        assert all(each < node.number for node in nodes for each in node.after)
        stretches = [(n.start_ns, n.end_ns) for n in nodes if not n.operation]
        assert total(stretches) == sum(end - start for start, end in stretches)


def sentence_or(look: Callable[[], object]) -> None:
    """Call ``look``, which may raise a TraceError of one sentence, and no other error."""
    said = "."
    try:
        look()
    except TraceError as error:
        said = str(error)
    assert "\n" not in said
    assert 0 < len(said) < 600


def test_the_job_itself_is_a_trace() -> None:
    assert all(len(top["traceEvents"]) > 50 for top in job())


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_each_mutation_changes_a_file(mutation: Mutation) -> None:
    changed = job()
    for seed in range(5):
        mutation(random.Random(seed), changed)
    assert json.dumps(changed) != json.dumps(job())
