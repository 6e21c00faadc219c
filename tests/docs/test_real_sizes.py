"""docs/real_sizes.md: each command of the session prints the numbers of the page."""

import re

import pytest

from tests.docs.test_commands import BLOCKS, sh
from tests.project.source import ROOT

pytestmark = pytest.mark.processes

SESSION = [
    (command.strip(), says.splitlines())
    for (_, command), (_, says) in zip(*[iter(BLOCKS["docs/real_sizes.md"])] * 2, strict=True)
]


@pytest.mark.parametrize(
    ("command", "says"), SESSION, ids=["too large", "fits", "a slow network", "hybrid"]
)
def test_a_command_prints_what_the_page_says(command: str, says: list[str]):
    printed = " ".join(sh(f"{command} 2>&1 || true", ROOT, limit=900).split())
    for line in says:
        assert re.sub(r"\s+", " ", line) in printed
