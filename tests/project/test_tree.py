"""The shape of the tree: small files, and no line that ties the tree to one machine."""

import os
import re

from tests.project.source import PACKAGE, ROOT, tracked_files

MOST_LINES = 400
# written in two halves, so that this file passes its own test
REGISTRIES = [f"{name}.{end}" for name, end in [
    ("pypi", "org"), ("pythonhosted", "org"), ("download.pytorch", "org"), ("anaconda", "org"),
    ("anaconda", "com"), ("npmjs", "org"), ("npmjs", "com"), ("yarnpkg", "com"),
]]  # fmt: skip
INDEX_OPTIONS = re.compile(r"--(extra-)?index-url\b|--find-links\b|--trusted-host\b")


def test_no_file_of_the_package_is_long():
    one_by_design = PACKAGE / "torch_private.py"  # a table of names, each with a probe
    files = [path for path in PACKAGE.rglob("*.py") if path != one_by_design]
    lengths = {path: len(path.read_text("utf-8").splitlines()) for path in files}
    assert {str(path): lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_no_package_registry_is_named():
    """Each machine sets the source of packages in pip's own configuration."""
    found = []
    for path in tracked_files():
        text = path.read_bytes().decode("utf-8", errors="ignore")
        names = [host for host in REGISTRIES if host in text]
        if path.name != "test_tree.py" and INDEX_OPTIONS.search(text):
            names.append("an index option of pip")
        found += [f"{path.relative_to(ROOT)}: {name}" for name in names]
    assert found == []


def test_ci_can_be_run():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
