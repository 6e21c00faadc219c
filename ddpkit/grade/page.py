"""The results of a class as one HTML page, without scripts and with all student text escaped."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from html import escape

from ddpkit.grade.publish.statistics import statistics
from ddpkit.grade.store import Result

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; color: #222 }
table { border-collapse: collapse } td, th { padding: .2rem .8rem .2rem 0; text-align: left }
td.n { text-align: right; font-variant-numeric: tabular-nums }
pre { white-space: pre-wrap; background: #f5f5f5; padding: .5rem; margin: .2rem 0 }
.pass { color: #00618a } .infra_error { background: #ffe9a8 }
"""
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(results: Sequence[Result]) -> str:
    """Return the page: a picture of the class, a table, and each student's feedback."""
    cases = "<details><summary>Which case fails how often, and with which hint</summary>"
    return framed(
        "Grades",
        f"<p>{escape(_summary(results))}</p>\n{_picture(results)}\n"
        f"{cases}<pre>{escape(statistics(results))}</pre></details>\n"
        f"{''.join(_table(results))}\n{''.join(details(results))}",
    )


def framed(title: str, body: str) -> str:
    """Return a whole HTML page; `title` is plain text, and `body` is HTML."""
    head = f'<meta charset=utf-8><meta http-equiv=Content-Security-Policy content="{POLICY}">'
    return (
        f"<!doctype html>\n<html lang=en><head>{head}<title>{escape(title)}</title>"
        f"<style>{STYLE}</style></head><body>\n<h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def _summary(results: Sequence[Result]) -> str:
    graded = [each for each in results if each.status == "graded"]
    refused = sum(each.status == "refused" for each in results)
    failed = sum(each.status == "infra_error" for each in results)
    said = [f"{len(graded)} graded", f"{refused} refused"]
    if gone := sum(each.status == "withdrawn" for each in results):
        said.append(f"{gone} withdrawn")
    if failed:
        said.append(f"{failed} not graded because the machine failed: run again with --resume")
    return ", ".join(said) + "."


def _table(results: Sequence[Result]) -> Iterator[str]:
    yield "<table><tr><th>submission<th>lab<th>status<th>points<th>exercises<th>look</tr>\n"
    for each in results:
        earned = "none" if each.earned is None else f"{each.earned:g} of {each.points:g}"
        look = "<br>".join(map(escape, each.look))
        marks = ", ".join(f"{escape(one.name)} {escape(one.status)}" for one in each.exercises)
        yield (
            f"<tr class={escape(each.status)}><td>{escape(each.name)}<td>{escape(each.lab)}"
            f"<td>{escape(each.status)}<td class=n>{earned}<td>{marks}<td>{look}</tr>\n"
        )
    yield "</table>"


def details(results: Sequence[Result]) -> Iterator[str]:
    """Yield the feedback on the submissions, as HTML."""
    for each in results:
        earned = "no points" if each.earned is None else f"{each.earned:g} of {each.points:g}"
        yield f"<h2>{escape(each.name)}: {earned}</h2>\n"
        yield "".join(f"<p>{escape(note)}</p>\n" for note in each.notes)
        for one in each.exercises:
            title = f"{one.name}: {one.status}, {one.earned:g} of {one.points:g}"
            yield f"<details><summary class={escape(one.status)}>{escape(title)}</summary>"
            text = escape("\n".join(one.feedback))
            yield f"<pre>{text}</pre></details>\n"


def _picture(results: Sequence[Result]) -> str:
    """Return a picture with a bar for each exercise.

    A bar shows the numbers of submissions with full, partial and no points.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    shares: dict[str, list[int]] = {}
    for result in results:
        for one in result.exercises:
            full, nothing = one.earned >= one.points, one.earned <= 0
            counts = shares.setdefault(f"{result.lab} {one.name}", [0, 0, 0])
            counts[0 if full else 2 if nothing else 1] += 1
    if not shares:
        return ""
    figure = Figure(figsize=(8, 0.9 + 0.35 * len(shares)), layout="constrained")
    axes = figure.subplots()
    names, left = list(shares), [0] * len(shares)
    looks = (("all points", "#0072b2"), ("some", "#f0b54d"), ("none", "#c9c9c9"))
    for part, (label, colour) in enumerate(looks):
        widths = [shares[name][part] for name in names]
        axes.barh(names, widths, left=left, label=label, color=colour)
        left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("submissions")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper right", ncols=3, frameon=False)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=110)
    data = base64.b64encode(stream.getvalue()).decode()
    words = "; ".join(f"{n}: {a} all, {b} some, {c} none" for n, (a, b, c) in shares.items())
    return f'<img src="data:image/png;base64,{data}" alt="{escape(words)}">'
