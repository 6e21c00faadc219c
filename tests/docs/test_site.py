"""The site builds without a warning, is complete, and needs only its own files."""

from __future__ import annotations

import base64
import functools
import hashlib
import html as html_module
import importlib
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.site import Page
from tests.project.source import ROOT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        None in map(importlib.util.find_spec, ("sphinx", "myst_nb", "furo")),
        reason="Sphinx is not installed: pip install -c constraints.txt -e '.[docs]'",
    ),
]

SOLUTIONS = sorted((ROOT / "solutions").glob("*.ipynb"))
PUBLIC = [f"ddpkit{name}" for name in ("", ".data", ".exercises", ".simulate", ".trace", ".view")]
read = functools.cache(Page)


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the site, built as `make docs` builds it."""
    said = subprocess.run(["make", "-n", "docs", "ARGS="], cwd=ROOT, capture_output=True, text=True)
    (line,) = (line for line in said.stdout.splitlines() if " -m sphinx " in line)
    folder = tmp_path_factory.mktemp("site")
    words = [word.replace("docs/_build", str(folder)) for word in line.split()[1:]]
    built = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert {"-W", "-n"} <= set(words), "a warning is an error, and so is a name that leads nowhere"
    assert (built.returncode, built.stderr) == (0, ""), built.stdout
    return folder / "html"


@pytest.fixture(scope="module")
def pages(html: Path) -> list[Page]:
    return [read(path) for path in sorted(html.rglob("*.html"))]


def test_every_link_leads_somewhere(pages: list[Page]):
    lost = [
        f"{page.path.name}: {link}"
        for page in pages
        for link in [*page.links, *page.loads]
        if not urlsplit(link).scheme and not leads(page, link)
    ]
    assert lost == []
    assert sum(len(page.links) for page in pages) > 500, "there were links to look at"


def leads(page: Page, link: str) -> bool:
    """True if the file of a link exists, and the place in the file."""
    parts = urlsplit(link)
    path = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
    if not path.is_file():
        return False
    return path.suffix != ".html" or not parts.fragment or unquote(parts.fragment) in read(path).ids


def test_nothing_is_loaded_from_elsewhere(html: Path, pages: list[Page]):
    assert [load for page in pages for load in page.loads if urlsplit(load).netloc] == []
    scripts = {load.partition("?")[0] for page in pages for load in page.loads}
    assert [name for name in scripts if re.search("mathjax|require", name, re.IGNORECASE)] == []
    for style in html.rglob("*.css"):
        named = re.findall(r"url\(\s*['\"]?([^)'\"]+)|@import\s+['\"]([^'\"]+)", style.read_text())
        assert [url for pair in named for url in pair if re.match("(https?:)?//", url)] == []


@pytest.mark.parametrize("solution", SOLUTIONS, ids=lambda path: path.stem)
def test_a_lab_is_shown_whole(html: Path, solution: Path):
    """The page shows every cell, all printed text, every picture, and each picture's text."""
    page = read(html / "solutions" / f"{solution.stem}.html")
    images, cells = dict(page.images), json.loads(solution.read_text("utf-8"))["cells"]
    source = page.path.read_text("utf-8")
    for cell in cells:
        outputs = cell.get("outputs", [])
        if cell["cell_type"] == "code":
            assert words(cell["source"]) in page.text
        for before, output in zip([{}, *outputs], outputs, strict=False):
            if output["output_type"] == "stream":
                assert words(output["text"]) in page.text
            if "ddpkit-figure" in "".join(before.get("data", {}).get("text/html", "")):
                alt = output["metadata"]["image/png"]["alt"]
                assert f"aria-label='{html_text(alt)}'" in source
            elif "image/png" in output.get("data", {}):
                png = base64.b64decode("".join(output["data"]["image/png"]))
                alt = output["metadata"].get("image/png", {}).get("alt", "plot drawn by")
                assert words([alt]) in images[f"{hashlib.sha256(png).hexdigest()}.png"]


def html_text(text: str) -> str:
    return html_module.escape(" ".join(text.split()))


def words(lines: list[str] | str) -> str:
    return " ".join("".join(lines).split())


def test_formulas_are_set_without_a_script(html: Path):
    source = (html / "solutions" / "02_collectives.html").read_text("utf-8")
    assert source.count("<math ") >= 5
    assert "\\frac" not in source


def test_every_public_name_is_described_once(html: Path):
    """The name is described at the place from which readers import it.

    Some names have two places.
    """
    ids = read(html / "docs" / "api.html").ids
    described: dict[int, set[str]] = {}
    for module in map(importlib.import_module, PUBLIC):
        for name in module.__all__:
            if not callable(value := getattr(module, name)):
                continue  # users of a table or a type describe it
            places = described.setdefault(id(value), set())
            homes = (module.__name__, "ddpkit.errors", "ddpkit.link")
            places |= {f"{home}.{name}" for home in homes} & ids
    assert [places for places in described.values() if len(places) != 1] == []


def test_names_in_descriptions_and_signatures_are_links(html: Path):
    titles = read(html / "docs" / "api.html").titles
    by_signature = {"ddpkit.cluster.cluster.Run", "ddpkit.simulate.messages.schedules.Schedule"}
    by_text = {"ddpkit.Trace.step", "ddpkit.view.Live", "ddpkit.show", "ddpkit.simulate.Step"}
    assert (by_signature | by_text) - titles == set()


def test_the_first_page_leads_to_every_other(html: Path):
    index = read(html / "index.html")
    there = {str(path.relative_to(html)) for path in html.rglob("*.html")}
    apart = {"index.html", "README.html"}  # the page itself
    apart |= {"genindex.html", "py-modindex.html", "search.html"}
    assert there - apart - {link.partition("#")[0] for link in index.links} == set()
