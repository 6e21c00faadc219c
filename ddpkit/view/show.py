"""Still pictures in a notebook, each with its text: `show`, `compare`, …."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ddpkit.trace import Trace, with_names
from ddpkit.view.attention.model import attention_picture
from ddpkit.view.blocks.model import Matrix, blocks_of
from ddpkit.view.comparison.model import comparison
from ddpkit.view.drawing.display import display_picture, in_ipython
from ddpkit.view.drawing.runs import HasTrace, skipped, trace_of
from ddpkit.view.heat.model import heat_of
from ddpkit.view.held.model import held_picture
from ddpkit.view.limits.model import limits_picture
from ddpkit.view.mesh.model import mesh_picture
from ddpkit.view.pipeline.model import pipeline_picture
from ddpkit.view.roof.model import Rates, roof_picture
from ddpkit.view.routing.model import routing_picture
from ddpkit.view.stacked.model import stacked_steps
from ddpkit.view.timeline.model import timeline_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def show(
    run_or_trace: HasTrace | Trace,
    step: int | None = None,
    *,
    names: Mapping[int, str] | None = None,
) -> Figure | None:
    """Draw the timeline of a run or a trace, or of one of its steps, and print its finding.

    ``names={0: "server"}``: the picture and its text call rank 0 "server".

    In a notebook the picture is displayed and None returned, so that it does not appear
    twice. Elsewhere the figure is returned: ``show(run).savefig("run.png")``. Without matplotlib
    only the text is printed. Raises TraceError if there is no such step, or no such rank to name.
    """
    if why := skipped("show", run_or_trace):
        print(why)
        return None
    model = timeline_model(with_names(trace_of(run_or_trace), names or {}), step)

    def draw() -> Figure:
        from ddpkit.view.timeline.figure import draw_timeline

        return draw_timeline(model)

    return _present(draw, f"{model.title}. {model.headline}", model.text)


def compare(
    *runs_or_traces: HasTrace | Trace,
    labels: Sequence[str] = (),
    rank: int | None = 0,
    step: int | None = None,
    names: Mapping[int, str] | None = None,
) -> Figure | None:
    """Draw two or more runs on one axis of time, and print their differences.

    One rank of each run is drawn, or all ranks with ``rank=None``. Step ``step`` of each run is
    compared; without ``step``, the typical step after the warm-up. If one of the runs has no steps,
    the whole runs are compared. ``names`` gives ranks other names, and the picture is shown and
    returned, as by `show`. Raises ValueError for fewer than two runs or labels that do not fit the
    runs, TraceError if there is no such step or rank.
    """
    if why := skipped("compare", *runs_or_traces, several=True):
        print(why)
        return None
    model = comparison(
        [with_names(trace_of(each), names or {}) for each in runs_or_traces], labels, rank, step
    )

    def draw() -> Figure:
        from ddpkit.view.comparison.figure import draw_comparison

        return draw_comparison(model)

    return _present(draw, f"{model.title}. {model.notice}", model.text)


def stack(
    *runs_or_traces: HasTrace | Trace,
    labels: Sequence[str] = (),
    by: int | None = None,
    rank: int = 0,
    step: int | None = None,
) -> Figure | None:
    """Draw the parts of a step of each run, as stacked bars in percent, and print the numbers.

    The parts are forward, backward, exposed communication, optimizer, other compute and idle time
    of one rank; hidden communication lies under compute and takes no time. Bars stand in groups of
    ``by`` runs (None: one group). The first bar of a group is 100 %, and each later bar shows its
    gain over the first bar, as in figure 6 of Li et al., PyTorch Distributed (VLDB 2020). The bar
    of a run shows step ``step``, or the typical step after the warm-up; a run without steps is
    shown whole. A trace may come from `Trace.load`. The picture is shown and returned as by `show`.
    Raises ValueError if labels, groups or the rank do not fit, TraceError if there is no such step.
    """
    if why := skipped("stack", *runs_or_traces, several=True):
        print(why)
        return None
    model = stacked_steps([trace_of(each) for each in runs_or_traces], labels, by, rank, step)

    def draw() -> Figure:
        from ddpkit.view.stacked.figure import draw_stacked

        return draw_stacked(model)

    return _present(draw, model.notice, model.text)


def heat_map(run_or_trace: HasTrace | Trace) -> Figure | None:
    """Draw the time of every step on every rank, and the time that the rank waited for its peers.

    Stragglers and long steps stand out; the text names the rank that the others wait for. The
    picture is shown and returned as by `show`. Raises TraceError for a run without steps.
    """
    if why := skipped("heat_map", run_or_trace):
        print(why)
        return None
    model = heat_of(trace_of(run_or_trace))

    def draw() -> Figure:
        from ddpkit.view.heat.figure import draw_heat

        return draw_heat(model)

    return _present(draw, model.notice, model.text)


def show_pipeline(*runs_or_traces: HasTrace | Trace, labels: Sequence[str] = ()) -> Figure | None:
    """Draw the micro-batch that each rank works on, over one step of each pipeline.

    Operations are the spans named F0, B0, W0, …, from `ddpkit.simulate.pipeline_time`, or from a
    run that gives such names to `span` or `busy`. Beside each rank's row stand the rank's bubble
    and the activations that the rank holds. The picture is shown and returned as by `show`. Raises
    TraceError for a trace without such spans, ValueError for labels that do not fit.
    """
    if why := skipped("show_pipeline", *runs_or_traces, several=True):
        print(why)
        return None
    model = pipeline_picture([trace_of(each) for each in runs_or_traces], labels)

    def draw() -> Figure:
        from ddpkit.view.pipeline.figure import draw_pipeline

        return draw_pipeline(model)

    return _present(draw, f"{model.title}. {model.text}", model.text)


def show_mesh(
    shape: Mapping[str, int], *, rank: int | None = None, per_host: int | None = None
) -> Figure | None:
    """Draw the ranks of a mesh and the groups along each of its dimensions.

    ``shape`` has the name and the size of at most three dimensions: {"replica": 2, "stage": 2,
    "slice": 2}. Consecutive ranks lie along the last dimension. The groups of ``rank`` stand out;
    with ``per_host`` ranks on a host, the picture shows the host of each rank. The picture is shown
    and returned as by `show`. Raises ValueError for more than three dimensions or 64 ranks, or if
    there is no such rank.
    """
    model = mesh_picture(shape, rank, per_host)

    def draw() -> Figure:
        from ddpkit.view.mesh.figure import draw_mesh

        return draw_mesh(model)

    return _present(draw, model.text, model.text)


def show_blocks(*matrices: Matrix, ranks: int = 4, whole: bool = True) -> Figure | None:
    """Draw the blocks of each matrix on the ranks, and print the bytes that ranks send.

    Several matrices are multiplied from the left: ``show_blocks(Matrix("x", 512, 256), Matrix("W",
    256, 1024, "columns"))`` is x W. Where ranks cannot multiply their blocks, a matrix is gathered
    or summed first; the last product is made whole too, unless ``whole`` is False. The bytes are
    those that each rank sends in ring collectives. The picture is shown and returned as by `show`.
    Raises ValueError for shapes that do not fit, and without a matrix or a rank.
    """
    model = blocks_of(matrices, ranks, whole=whole)

    def draw() -> Figure:
        from ddpkit.view.blocks.figure import draw_blocks

        return draw_blocks(model)

    return _present(draw, f"{model.title}. {model.text}", model.text)


def show_attention(
    places: Sequence[Iterable[int]], *, causal: bool = True, tiles: int = 2
) -> Figure | None:
    """Draw a sequence's attention in tiles, coloured by rank, and print each rank's pairs.

    ``places[r]`` has the positions of rank r's tokens, as a list or a tensor of integers:
    ``show_attention([range(0, 32), range(32, 64)])``. A pair is a query and a key that the query
    sees: with ``causal``, the key of its own position and all keys before. Each rank's share of the
    positions is cut into ``tiles`` parts. A tile has the queries of one part and the keys of one
    part; tiles without a pair are not drawn. The picture is shown and returned as by `show`. Raises
    ValueError if a position is on no rank or on two, and for more than 16 ranks or 128 stretches of
    consecutive positions.
    """
    model = attention_picture(places, causal=causal, tiles=tiles)

    def draw() -> Figure:
        from ddpkit.view.attention.figure import draw_attention

        return draw_attention(model)

    return _present(draw, f"{model.title}. {model.finding}", model.text)


def show_routing(counts: Sequence[Iterable[Any]], per_rank: int | None = None) -> Figure | None:
    """Draw the rows from each rank to each expert, and the rows of each rank beside their mean.

    ``counts[r]`` has the number of rows from rank r to each expert, such as
    ``chosen.flatten().bincount(minlength=experts)`` on rank r. Rank r has ``per_rank`` experts,
    from expert r * per_rank on; by default the ranks share the experts evenly. The picture is shown
    and returned as by `show`.
    Raises ValueError for counts that do not fit together, TypeError for counts that are no ints.
    """
    model = routing_picture(counts, per_rank)

    def draw() -> Figure:
        from ddpkit.view.routing.figure import draw_routing

        return draw_routing(model)

    return _present(draw, f"{model.title}. {model.finding}", model.text)


def show_held(
    runs: Mapping[str, HasTrace | Trace],
    *,
    limit: float | None = None,
    rank: int = 0,
    kind: str | None = "activations",
) -> Figure | None:
    """Draw the bytes that a rank of a modelled machine holds over time, a line for each run.

    ``runs`` has a label for each run: ``show_held({"all kept": run, "again": other}, limit=30e6)``.
    ``kind`` is one of parameters, gradients, optimizer, buckets and activations; None stands for
    all bytes. A dashed line marks ``limit``, in bytes, and a cross the end of a run that ran out
    of memory. The picture is shown and returned as by `show`. Raises ValueError for no run, more
    than 6 runs, or an unknown kind, and TraceError if a run has no memory levels of the rank. If no
    run has memory levels, as under torchrun, a sentence is printed.
    """
    if why := skipped("show_held", *runs.values(), several=True):
        print(why)
        return None
    failed = [label for label, each in runs.items() if _out_of_memory(each, rank)]
    traces = {label: trace_of(each) for label, each in runs.items()}
    if traces and not any(trace.memory for trace in traces.values()):
        print("No picture: the runs have no memory levels. Only a modelled machine counts memory.")
        return None
    model = held_picture(traces, failed, rank=rank, kind=kind, limit=limit)

    def draw() -> Figure:
        from ddpkit.view.held.figure import draw_held

        return draw_held(model)

    return _present(draw, f"{model.title}. {model.finding}", model.text)


def show_roof(operations: Sequence[tuple[float, float]], machine: Rates) -> Figure | None:
    """Draw operations under the roofs of a machine, and print the shares of the time by limit.

    ``operations`` is a list of (FLOPs, bytes), in the order of their launches. ``machine`` has
    ``flops`` in FLOP/s, ``bandwidth`` in bytes/s and ``launch`` in seconds. A dot stands for all
    operations with the same FLOPs per byte, FLOP/s and limit. The axes are FLOPs per byte (to the
    right) and FLOP/s (upwards), both logarithmic. The area of a dot grows with the time of its
    operations; its mark shows their limit. The picture is shown and returned as by `show`. Raises
    ValueError for no operation, an operation without bytes, or a rate of 0.
    """
    model = roof_picture(operations, machine)

    def draw() -> Figure:
        from ddpkit.view.roof.figure import draw_roof

        return draw_roof(model)

    return _present(draw, f"{model.title}. {model.finding}", model.text)


def show_limits(
    lines: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    limits: Mapping[str, float] | None = None,
) -> Figure | None:
    """Draw the exposed communication's share of a step by tokens per rank, a line for each network.

    ``lines`` has (tokens, shares) for each label: ``{"50 GB/s": ([4096, 8192], [0.6, 0.3])}``.
    ``limits`` has a number of tokens by label, such as the result of a formula: a vertical line
    marks each number. The picture is shown and returned as by `show`. Raises ValueError for no
    line, more than 5 lines, tokens that are not in rising order, shares outside 0 to 1, or a limit
    with a label that no line has.
    """
    model = limits_picture(lines, limits)

    def draw() -> Figure:
        from ddpkit.view.limits.figure import draw_limits

        return draw_limits(model)

    return _present(draw, f"{model.title}. {model.finding}", model.text)


def _out_of_memory(run: HasTrace | Trace, rank: int) -> bool:
    raised = getattr(getattr(run, "error", None), "raised", {})
    return rank in raised and raised[rank].type == "OutOfMemoryError"


def _present(draw: Callable[[], Figure], finding: str, text: str) -> Figure | None:
    """Print the text of a picture, and display the picture; outside a notebook, return it."""
    try:
        figure = draw()
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        print(text, "(No picture: matplotlib is not installed.)", sep="\n")
        return None
    displayed = in_ipython()
    if displayed:
        display_picture(figure, finding, text)
    print(text)
    return None if displayed else figure
