"""The results of a class in formats for other programs: json, junit, gradescope, csv."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import asdict
from xml.etree import ElementTree

from ddpkit.errors import GradeError
from ddpkit.grade.page import page
from ddpkit.grade.store import Result
from ddpkit.text import visible

# The characters that XML 1.0 forbids; a student's output may contain them.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
FAILED = {"fail"}  # the answer is wrong; every other status but pass is an error of the run


def report(results: Sequence[Result], form: str) -> str:
    """Return the results in one of `FORMATS`.

    Raises GradeError if the format cannot hold the results.
    """
    return FORMATS[form](results)


def _json(results: Sequence[Result]) -> str:
    rows = [asdict(each) | {"source": visible(each.source)} for each in results]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


def _junit(results: Sequence[Result]) -> str:
    root = ElementTree.Element("testsuites")
    for result in results:
        suite = ElementTree.SubElement(root, "testsuite", name=_xml(result.name))
        counts = {"tests": 0, "failures": 0, "errors": 0}
        for one in result.exercises:
            kind = "" if one.status == "pass" else "failure" if one.status in FAILED else "error"
            _case(suite, result, one.name, kind, one.status, "\n".join(one.feedback))
            counts["tests"] += 1
            counts["failures"] += kind == "failure"
            counts["errors"] += kind == "error"
        if not result.exercises:
            _case(suite, result, "submission", "error", result.status, "\n".join(result.notes))
            counts["tests"], counts["errors"] = 1, 1
        suite.attrib |= {name: str(count) for name, count in counts.items()}
        suite.set("time", f"{result.seconds:.1f}")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(
    suite: ElementTree.Element, result: Result, name: str, kind: str, status: str, text: str
) -> None:
    case = ElementTree.SubElement(suite, "testcase", classname=_xml(result.name), name=name)
    if kind:
        ElementTree.SubElement(case, kind, message=status, type=status).text = _xml(text)


def _xml(text: str) -> str:
    return _NO_XML.sub("�", text)


def _gradescope(results: Sequence[Result]) -> str:
    """Return the text of /autograder/results/results.json, which holds exactly one result."""
    if len(results) != 1:
        raise GradeError(
            f"--format gradescope writes the result of exactly one submission, but this folder has "
            f"{len(results)} results."
        )
    (result,) = results
    if result.earned is None:  # without a score, Gradescope reports a failed autograder
        raise GradeError(f"{result.name} was not graded: {' '.join(result.notes)}")
    tests = [
        {
            "name": one.name,
            "score": one.earned,
            "max_score": one.points,
            "status": "passed" if one.status == "pass" else "failed",
            "output": "\n".join([one.status, *one.feedback]),
            "output_format": "text",
            "visibility": "visible",
        }
        for one in result.exercises
    ]
    rest = {"output": "\n".join(result.notes), "output_format": "text", "tests": tests}
    return json.dumps({"score": result.earned, **rest}, indent=1, ensure_ascii=False) + "\n"


def _csv(results: Sequence[Result]) -> str:
    """Return the results as CSV, a line for each submission; a spreadsheet shows cells as text."""
    names = list(dict.fromkeys(one.name for result in results for one in result.exercises))
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)
    table.writerow(["submission", "lab", "status", "earned", "points", *names, "look"])
    for result in results:
        earned = {one.name: one.earned for one in result.exercises}
        total = "" if result.earned is None else result.earned
        head = [plain_cell(result.name), result.lab, result.status, total, result.points]
        look = plain_cell("; ".join(result.look))
        table.writerow([*head, *(earned.get(name, "") for name in names), look])
    return stream.getvalue()


def plain_cell(value: str) -> str:
    """Return text for a cell that no spreadsheet takes for a formula.

    Some spreadsheets take even a full-width equals sign for the start of a formula.
    """
    first = unicodedata.normalize("NFKC", value).lstrip()[:1]
    return f"'{value}" if first in tuple("=+-@|%−") or value[:1] in tuple("\t\r\n") else value


FORMATS: dict[str, Callable[[Sequence[Result]], str]] = {
    "json": _json,
    "junit": _junit,
    "gradescope": _gradescope,
    "csv": _csv,
    "html": page,
}
