"""Numbers and sentences of the timeline: its title, its finding, and its text alternative."""

from collections.abc import Iterable, Mapping

from ddpkit.simulate import Step
from ddpkit.text import columns, count, size
from ddpkit.trace import Breakdown, Scalar, Trace, how_made, name_of
from ddpkit.trace.copies import CopyTotal
from ddpkit.trace.queues import starvation

LITTLE = 0.01  # share of the longer step: smaller differences get no sentence


def ms(ns: int) -> str:
    """Return ns as text in ms: ``ms(405_300_000) == "405 ms"``, ``ms(42_000) == "0.042 ms"``."""
    value = ns / 1e6
    if 0 < value < 0.01:
        return "<0.01 ms"
    if value >= 10 or value == 0:
        return f"{value:,.0f} ms"
    return f"{value:.1f} ms" if value >= 1 else f"{value:.2g} ms"


def percent(part: int, whole: int) -> str:
    """Return a whole percentage; a share above 0 and under half a percent is "<1%", never "0%"."""
    if part == 0 or whole == 0:
        return "0%"
    return "<1%" if part / whole < 0.005 else f"{100 * part / whole:.0f}%"


def title(trace: Trace, subject: str = "Run") -> str:
    """Return a title such as "Step 3 on 2 ranks, 5 all-reduces of 4 MB (gloo, CPU)"."""
    facts = trace.facts
    where = [str(facts.get("backend", "")), str(facts.get("device", "")).upper()]
    if not is_simulated(facts):  # the name of a simulated backend says "simulated" already
        where.append(how_made(facts))
    inside = ", ".join(word for word in where if word)
    operations = _operations(trace)
    said = operations[:2] + ["and more"] * (len(operations) > 2)
    what = "".join(f", {operation}" for operation in said)
    return f"{subject} on {trace.ranks_in_words}{what}" + (f" ({inside})" if inside else "")


def is_simulated(facts: Mapping[str, Scalar]) -> bool:
    """Return True if a simulation made the trace: no part of it was measured or emulated."""
    return how_made(facts) == "simulated"


def emulated(facts: Mapping[str, Scalar]) -> str:
    """Return the settings of emulated time, such as links; "" if a trace's time is not emulated."""
    if how_made(facts) != "emulated":
        return ""
    known = (
        *(("Links", "emulated"), ("Machine", "machine"), ("Speed", "speed"), ("Order", "order")),
        ("Alike", "alike"),
        *(("Values", "values"), ("Values read all the same, as zero", "reads")),
        ("Times without synchronize(), which are times of launches", "timed"),
    )
    said = (f"{word}: {facts[fact]}." for word, fact in known if facts.get(fact))
    return " ".join(["Emulated time.", *said])


def of_step(step: Step) -> str:
    """Return " (compute: emulated)" for a step recorded in emulated time, otherwise ""."""
    return " (compute: emulated)" if step.emulated else ""


def _operations(trace: Trace) -> list[str]:
    """Return phrases on the communication, most bytes first: "5 all-reduces of 4 MB"."""
    sizes: dict[tuple[str, int], list[int]] = {}
    for span in (span for span in trace.spans if span.kind == "comm"):
        if span.is_send:
            sizes.setdefault(("message", -1), []).append(span.bytes)
        elif span.is_collective:
            sizes.setdefault((_collective(span.name), span.rank), []).append(span.bytes)
    phrases: dict[str, tuple[int, str]] = {}
    for (name, _), each in sizes.items():
        same = len(set(each)) == 1
        many = f" of {size(each[0])}" if same else f" ({size(sum(each))})"
        phrases[name] = max(
            phrases.get(name, (-1, "")),
            (sum(each), count(len(each), name) + (many if sum(each) else "")),
        )
    return [phrase for _, phrase in sorted(phrases.values(), reverse=True)]


def _collective(name: str) -> str:
    """Return a collective's name: ``_collective("all_gather_into_tensor") == "all-gather"``."""
    for ending in ("_tensor", "_into", "_single"):
        name = name.removesuffix(ending)
    return name.replace("_", "-")


def headline(
    parts: dict[int, Breakdown], facts: Mapping[str, Scalar], *, compute: bool, comm: bool
) -> str:
    """Return the finding in a sentence or two."""
    busy = [p.compute_ns / p.step_ns for p in parts.values() if p.step_ns] or [1.0]
    if separate := facts.get("separate"):
        said = f"No rank called init_process_group: these were {separate} separate "
        if not compute:
            return f"{said}programs."
        return f"{said}trainings. Compute fills {percents(busy)} of the time."
    if not parts or not (compute or comm):
        if any(p.copy_ns for p in parts.values()):
            return "Only copies were recorded: no compute and no communication."
        return "Nothing was recorded: no compute and no communication."
    rank = max(parts, key=lambda rank: parts[rank].exposed_ns)
    worst = parts[rank]
    of = f"{name_of(facts, rank)}, {ms(worst.exposed_ns)} of {ms(worst.step_ns)}"
    hidden = [p.hidden for p in parts.values() if p.hidden is not None]
    if comm and not compute:
        return f"No compute recorded. Longest in communication: {of}."
    if not hidden:  # no communication, or only communication that took no time
        return f"No communication. Compute fills {percents(busy)} of the time."
    return f"Communication hidden behind compute: {percents(hidden)}.   Most exposed: {of}."


def ratio(before: int, after: int) -> str:
    """Return the ratio of two times in words: ``ratio(142, 100) == "1.42× shorter than"``."""
    low, high = sorted((before, after))
    if low == high or (low and high / low < 1 + LITTLE / 2):
        return "as long as"
    much = f"{high / low:.3g}× " if low else ""
    return f"{much}{'shorter' if after < before else 'longer'} than"


def percents(fractions: Iterable[float]) -> str:
    """Return the range of fractions in percent: ``percents([0.9, 0.46]) == "46% to 90%"``."""
    texts = [f"{100 * fraction:.0f}%" for fraction in sorted(fractions)]
    return texts[0] if texts[0] == texts[-1] else f"{texts[0]} to {texts[-1]}"


def note(facts: Mapping[str, Scalar], *, compute: bool, comm: bool) -> str:
    """Return the remarks that the numbers need, such as the emulated link; may be ""."""
    notes = []
    if comm and not compute:
        notes.append('No compute was recorded: "idle" is all time outside communication.')
    if said := emulated(facts):
        notes.append(said)
    elif link := facts.get("emulated"):
        notes.append(f"{'L' if is_simulated(facts) else 'Emulated l'}ink: {link}.")
    if hosts := facts.get("hosts"):
        error = ms(int(facts.get("clock_error_ns", 0)))
        notes.append(f"{hosts} hosts, whose clocks were compared: times are right to {error}.")
    if restart := facts.get("restart"):
        notes.append(f"After restart {restart}.")
    if kept := facts.get("kept"):
        notes.append(f"Of this long run, {kept} were kept.")
    return " ".join(notes)


def deaths(died: Mapping[int, int], facts: Mapping[str, Scalar]) -> str:
    """Return a sentence for each rank that died, with the time of death; "" if no rank died.

    ``died`` has the times by rank, in ns since the picture's left edge.
    """
    return " ".join(f"{name_of(facts, r).capitalize()} died at {ms(ns)}." for r, ns in died.items())


def waited(waits: dict[int, int], facts: Mapping[str, Scalar]) -> str:
    """Return a sentence on the rank for which peers waited longest; "" if no rank waited.

    ``waits`` has the time that peers waited for each rank, in ns.
    """
    if not any(waits.values()):
        return ""
    rank = max(waits, key=lambda rank: (waits[rank], -rank))
    return f"Most waited for: {name_of(facts, rank)}, {ms(waits[rank])} of its peers' time."


def columns_of(parts: Iterable[Breakdown]) -> dict[str, str]:
    """Return the columns of a table of breakdowns: heading -> name of a field of `Breakdown`.

    There is a column of copies only if a rank has copies.
    """
    copies = {"copy": "copy_ns"} if any(p.copy_ns for p in parts) else {}
    return {
        "compute only": "compute_only_ns",
        "overlapped": "overlapped_ns",
        "exposed comm": "exposed_ns",
        **copies,
        "idle": "idle_ns",
    }


def copied(of: Mapping[str, Mapping[str, CopyTotal]]) -> list[str]:
    """Return a line on the copies of each rank that has copies; ``of`` has the ranks by name.

    A copy is hidden while the rank computes or communicates. If the lines of all ranks are equal,
    one line stands for all.
    """
    lines = {
        name: "; ".join(
            f"{direction} ×{each.times:,}, {f'{size(each.bytes)}, ' if each.bytes else ''}"
            f"{ms(each.ns)}, {percent(each.hidden_ns, each.ns)} hidden"
            for direction, each in copies.items()
        )
        for name, copies in of.items()
        if copies
    }
    if len(lines) == len(of) > 1 and len({*lines.values()}) == 1:
        return [f"Copies of each rank: {next(iter(lines.values()))}."]
    return [f"Copies of {name}: {line}." for name, line in lines.items()]


def starved(trace: Trace) -> str:
    """Return a sentence on the rank whose device waits longest for launches; "" if none waits."""
    known = {rank: starvation(trace, rank) for rank in trace.recorded_ranks}
    found = {rank: each for rank, each in known.items() if each is not None}
    if not found:
        return ""
    rank = max(found, key=lambda rank: (found[rank].waited_ns, -rank))
    start, end = trace.window_of(rank)
    waits, longest = found[rank].waited_ns, found[rank].longest
    return (
        f"The device waits for launches: on {name_of(trace.facts, rank)} for {ms(waits)} of "
        f"{ms(end - start)}; longest, {longest.name}."
    )


def table(
    parts: Mapping[str, Breakdown], waiting: Mapping[str, int], whole: str, corner: str = ""
) -> list[str]:
    """Return the lines of a table: a row for each named breakdown, with the parts in ms and %.

    Without compute, communication cannot be hidden: the table then has only the time in
    communication, and the part of that time that was waiting.
    """
    if not any(p.compute_ns for p in parts.values()):
        told = [
            [name, ms(p.step_ns), ms(p.comm_ns), ms(waiting[name])] for name, p in parts.items()
        ]
        return columns([[corner, whole, "communication", "waiting"], *told])
    shown = columns_of(parts.values())
    rows = [[corner, whole, *shown, "hidden", "waiting"]]
    for name, p in parts.items():
        times = (getattr(p, field) for field in shown.values())
        hidden = "no comm" if p.hidden is None else percent(p.overlapped_ns, p.comm_ns)
        cells = [f"{ms(ns)} {percent(ns, p.step_ns):>4}" for ns in times]
        rows.append([name, ms(p.step_ns), *cells, hidden, ms(waiting[name])])
    return columns(rows)
