"""A deck as one HTML file: nbconvert's slides, with reveal.js and the styles inside the file."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

from ddpkit.authoring.notebook import Notebook, to_text
from ddpkit.errors import LessonError

HERE = Path(__file__).parent / "template"
EXTRA = "slides"  # the extra of pyproject.toml that brings reveal.js
WIDTH, HEIGHT = 1280, 720  # pixels of a slide; reveal.js scales a slide to the screen


def missing() -> str:
    """Return a sentence about a missing package; "" if a deck can be made."""
    needed = {"nbconvert": "nbconvert", "sphinx-revealjs": "sphinx_revealjs"}
    lacks = [name for name, module in needed.items() if importlib.util.find_spec(module) is None]
    if not lacks:
        return ""
    return (
        f"The slides need {' and '.join(lacks)}: run `make slides`, or install ddpkit with the "
        f"extra `{EXTRA}`."
    )


def to_page(deck: Notebook) -> str:
    """Return a deck as HTML that loads nothing: reveal.js, styles and pictures are in the text.

    Raises LessonError if a package of the extra "slides" is missing.
    """
    if lacks := missing():
        raise LessonError(lacks)
    import nbformat
    from nbconvert import SlidesExporter
    from traitlets.config import Config

    config = Config()
    config.SlidesExporter.extra_template_basedirs = [str(HERE.parent)]
    config.SlidesExporter.template_name = HERE.name
    config.SlidesExporter.exclude_anchor_links = True
    node = nbformat.reads(to_text(deck), as_version=4)  # type: ignore[no-untyped-call]
    exporter = SlidesExporter(config=config)  # type: ignore[no-untyped-call]
    resources = {"deck": {"title": deck["metadata"]["title"], **_inlined()}}
    page, _ = exporter.from_notebook_node(node, resources=resources)
    return str(page)


def _inlined() -> dict[str, str]:
    """Return the scripts and styles of a page. A style comes before the styles that override it."""
    reveal = _reveal()
    scripts = [reveal / "dist" / "reveal.js", reveal / "plugin" / "notes" / "notes.js"]
    styles = [reveal / "dist" / "reset.css", reveal / "dist" / "reveal.css", HERE / "slides.css"]
    start = (HERE / "slides.js").read_text("utf-8")
    sizes = json.dumps({"width": WIDTH, "height": HEIGHT})
    return {
        "scripts": "\n".join([*map(_script, scripts), start.replace("SIZES", sizes)]),
        "styles": "\n".join([*(path.read_text("utf-8") for path in styles), *_highlighting()]),
    }


def _reveal() -> Path:
    """Return the folder of reveal.js, which the package sphinx-revealjs carries."""
    spec = importlib.util.find_spec("sphinx_revealjs")
    assert spec is not None  # `missing` has found the package
    assert spec.origin is not None
    return Path(spec.origin).parent / "_static" / "revealjs"


def _script(path: Path) -> str:
    """Return the text of a script, with "</script" escaped, which would end the HTML element."""
    return path.read_text("utf-8").replace("</script", "<\\/script")


def _highlighting() -> list[str]:
    """Return the colours of code on light and on dark paper, from two styles of Pygments."""
    from pygments.formatters import HtmlFormatter

    themes = {":root": "default", ":root[data-theme=dark]": "native"}
    return [
        HtmlFormatter(style=style).get_style_defs(f"{root} .highlight")
        for root, style in themes.items()
    ]
