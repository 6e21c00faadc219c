"""One source, six products: what `make release` makes of solutions/NN_name.py.

    solutions/NN_name.py                    written by hand (jupytext py:percent)
    ├── labs/NN_name.ipynb                  the answers blank, no outputs: what students open
    ├── solutions/NN_name.ipynb             the same cells solved and executed: what readers see
    ├── ddpkit/answers/labNN.py             the answers as a module: what `carry` falls back on
    ├── ddpkit/answers/__init__.py          which answer lies in which module, over all lessons
    ├── labs/start.ipynb                    the map of the course, from solutions/start.md
    └── README.md, its table of labs         a row for each lesson, of what its header says;
        docs/teaching.md has another, with hours and points

`release` makes them and `check` says what is stale, both by `parse` and the `make_*` functions;
`execute` runs a notebook. Modules, in reading order: blocks (the solution markers), lesson,
notebook, answers, readme, syllabus, start, kernel; outputs, leaks and rules (what must not be);
stale; pipeline.
"""

from ddpkit.authoring.answers import make_answers, make_index
from ddpkit.authoring.kernel import execute
from ddpkit.authoring.lesson import Cell, Lesson, parse
from ddpkit.authoring.notebook import Notebook, make_lab, make_solution, to_text
from ddpkit.authoring.pipeline import Released, check, release

__all__ = [
    "Cell",
    "Lesson",
    "Notebook",
    "Released",
    "check",
    "execute",
    "make_answers",
    "make_index",
    "make_lab",
    "make_solution",
    "parse",
    "release",
    "to_text",
]
