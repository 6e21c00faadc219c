"""The type `Any` describes nothing: the share of `Any` in the package may only fall."""

import ast

from tests.project.source import modules

MOST = 10.0  # for each 1,000 lines
GENERATED = "ddpkit.answers.lab"


def test_any_is_not_said_more_often():
    sources = [
        path.read_text("utf-8")
        for name, path in modules().items()
        if not name.startswith(GENERATED)
    ]
    nodes = (node for source in sources for node in ast.walk(ast.parse(source)))
    said = sum(isinstance(node, ast.Name) and node.id == "Any" for node in nodes)
    assert 1000 * said / sum(len(source.splitlines()) for source in sources) <= MOST
