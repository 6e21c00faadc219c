"""The site: `make docs` builds it from the files as they stand in the repository.

Its sources are README and the other Markdown files, the executed solutions and the docstrings. Each
is a page where it lies, so links work here as they do there. Nothing is executed, nothing fetched.
"""

import sys
from pathlib import Path

import ddpkit

sys.path.insert(0, str(Path(__file__).parent))

project = "ddpkit"
release = ddpkit.__version__
copyright = "the ddpkit authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "hooks"]

root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "solutions/*.ipynb", "ddpkit/data/*.md"]
exclude_patterns = [".*", "benchmarks", "changes", "docs/_build", "labs", "tests"]

html_theme = "furo"
html_title = f"ddpkit {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sphinx = False
html_show_search_summary = False  # a browser may not fetch the searched pages from a disk
html_math_renderer = "mathml"

nb_execution_mode = "off"  # the notebooks hold what `make release` executed
nb_merge_streams = True
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

default_role = "py:obj"  # `x` in a docstring: a link, where x is a public name
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
# Backticks hold any code, and signatures name private types and types of other libraries.
# tests/docs/test_site.py checks that the public names are there and linked.
nitpick_ignore_regex = [("py:(obj|class)", ".*")]

# README has no table of contents: on GitHub the files stand beside it.
contents = """
```{toctree}
:hidden:
:caption: Labs
:glob:
solutions/*
```
```{toctree}
:hidden:
:caption: Guides
docs/course
docs/teaching
docs/clusters
docs/emulation
docs/run
docs/real_sizes
docs/pictures
docs/where
docs/api
docs/glossary
```
```{toctree}
:hidden:
:caption: Project
ARCHITECTURE
docs/reading
BENCHMARKS
CONTRIBUTING
RELEASING
CHANGELOG
Digits <ddpkit/data/DIGITS>
```
"""
