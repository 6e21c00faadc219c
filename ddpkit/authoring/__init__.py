"""The products that `make release` makes from the lessons, solutions/NN_name.py.

    solutions/NN_name.py                    written by hand (jupytext py:percent)
    ├── labs/NN_name.ipynb                  for students: the answers blank, no outputs
    ├── solutions/NN_name.ipynb             for readers: the same cells solved and executed
    ├── ddpkit/answers/labNN.py             the answers as a module, the fallback of `carry`
    ├── ddpkit/answers/__init__.py          an index: answer -> module, over all lessons
    ├── labs/start.ipynb                    the map of the course, from solutions/start.md
    └── README.md, the table of labs        a row for each lesson, from the lesson's header;
        docs/course.md has the same table, and docs/teaching.md has hours, points and plans

slides/ makes a deck for a lecture, one HTML file for each lesson; the repository keeps no deck.

`release` makes the products, and `check` lists stale products. Both use `parse` and the `make_*`
functions. `execute` runs a notebook. Modules, in reading order: blocks (the solution markers),
lesson, notebook, answers, readme, syllabus, start, kernel; outputs, leaks and rules (prohibited
contents); stale; pipeline.
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
