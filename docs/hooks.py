"""Extend Sphinx for this site: pages, plain docstrings, formulas without a script."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.util.nodes import make_refnode

from ddpkit.authoring.slides.words import mathml

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FIGURE = "ddpkit-figure"  # class of a drawing, see ddpkit/view/drawing/display.py
TEACHERS = "teaching/"  # beside docs/teaching.md: pages with keys to the written questions


def read_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add to a page whatever the site needs and the file lacks."""
    if docname.startswith("solutions/"):
        source[0] = with_alt(source[0])
        return
    folder = Path(app.env.doc2path(docname)).parent

    def without_folder(link: re.Match[str]) -> str:
        left_out = (folder / link[2]).is_dir() or link[2].startswith(TEACHERS)
        return link[1] if left_out else link[0]

    # The site has no page for a folder or for a key, so links to these become plain text.
    source[0] = re.sub(r"\[([^]\n]+)\]\(([^):#\n]+)\)", without_folder, source[0])
    # GitHub draws Mermaid; the site loads nothing from elsewhere, so it shows the text.
    source[0] = source[0].replace("```mermaid\n", "```text\n")
    if docname == app.config.root_doc:  # links to the executed labs, and the table of contents
        source[0] = source[0].replace("](labs/", "](solutions/") + app.config.contents


def with_alt(notebook: str) -> str:
    """Return the notebook with the text of each picture at the place where MyST-NB looks.

    A PNG behind a drawing of ddpkit is left out: the drawing has its own text.
    Answers are folded, so that students can read the page of a lab before they solve the lab.
    """
    book = json.loads(notebook)
    for cell in book["cells"]:
        if "exercise" in cell["metadata"].get("ddpkit", {}):
            cell["metadata"]["tags"] = [*cell["metadata"].get("tags", []), "hide-input"]
        outputs = cell.get("outputs", [])
        drawn = [FIGURE in "".join(each.get("data", {}).get("text/html", "")) for each in outputs]
        if any(drawn):
            pairs = zip(outputs, [False, *drawn], strict=False)
            cell["outputs"] = [output for output, behind in pairs if not behind]
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                known = output["metadata"].get("image/png", {})
                alt = " ".join(known.get("alt", "plot drawn by the code above").split())
                cell["metadata"]["mystnb"] = {"image": {"alt": alt}}
    return json.dumps(book)


def read_docstring(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Turn a docstring, written for `help`, into reST: fences become code, columns stay."""
    text = re.sub(
        r"^```python\n(.*?)```",
        lambda fence: "::\n\n" + textwrap.indent(fence[1], "    "),
        "\n".join(lines),
        flags=re.DOTALL | re.MULTILINE,
    )
    text, _, errors = text.partition("\nRaises:\n")
    text += "\n" + re.sub(r"^    (\w+): ", r":raises \1: ", errors, flags=re.MULTILINE)
    literal, blocks = False, []
    for block in text.split("\n\n"):
        indented = block.startswith(" ")
        literal = literal and indented
        if not literal and re.search(r"\S {2,}\S", block):
            block = "::\n\n" + (block if indented else textwrap.indent(block, "    "))
            literal = True
        literal = literal or block.endswith("::")
        blocks.append(block)
    lines[:] = "\n\n".join(blocks).splitlines()


def find_public(app: Sphinx, env: Any, node: Any, contnode: Any) -> nodes.reference | None:
    """Link a public name, in the text of any module: `Trace` leads to `ddpkit.Trace`."""
    name = "." + node.get("reftarget", "")
    known = env.get_domain("py").objects
    found = [full for full in known if full.endswith(name) and not known[full].aliased]
    if node.get("refdomain") != "py" or len(found) != 1:
        return None
    page = known[found[0]].docname
    return make_refnode(app.builder, node["refdoc"], page, found[0], contnode, found[0])


def visit_math(self: Any, node: nodes.Node) -> None:
    """Write a formula as MathML, which browsers set without a script."""
    self.body.append(mathml(node.astext(), block=isinstance(node, nodes.math_block)))
    raise nodes.SkipNode


def give_index(app: Sphinx, exception: Exception | None) -> None:
    """Copy README's page to index.html, the page that a server shows first."""
    if exception is None:
        (app.outdir / "index.html").write_bytes((app.outdir / "README.html").read_bytes())


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_config_value("contents", "", "env", str)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    app.connect("source-read", read_source)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("missing-reference", find_public)
    app.connect("build-finished", give_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
