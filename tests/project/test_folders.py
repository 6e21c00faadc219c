"""Every folder's docstring is its table of contents: it names all that is there, and no more."""

import ast
import re
from pathlib import Path

import pytest

from tests.project.source import PACKAGE

FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))
GENERATED = [PACKAGE / "answers"]  # `ddpkit release` writes its docstring


def contents(folder: Path) -> set[str]:
    """Return the names of modules and folders in a folder, without `__init__` and `__main__`."""
    modules = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("__")}
    found = modules | {path.parent.name for path in folder.glob("*/__init__.py")}
    return {re.sub(r"^lab\d\d$", "labNN", name) for name in found}


def docstring(folder: Path) -> str:
    return ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(PACKAGE.parent)))
def test_a_folder_names_each_of_its_modules(folder: Path):
    if folder in GENERATED:
        return
    said = set(re.findall(r"\w+", docstring(folder)))
    assert sorted(contents(folder) - said) == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(PACKAGE.parent)))
def test_a_folder_lists_nothing_that_is_gone(folder: Path):
    """A row is `name  description`, or `one, two  description`; rows may be indented."""
    rows = re.findall(r"^ *((?:\w+/?, )*\w+/?)  +[a-zA-Z`]", docstring(folder), re.MULTILINE)
    listed = {name.rstrip("/") for row in rows for name in row.split(", ")}
    assert sorted(listed - contents(folder) - _imported(folder) - {"labNN"}) == []


def _imported(folder: Path) -> set[str]:
    """Return the public names that `__init__` imports: a page of nouns may list these names."""
    tree = ast.parse((folder / "__init__.py").read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {alias.name for node in imports for alias in node.names}
