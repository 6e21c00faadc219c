"""docs/clusters.md: its commands, for the tests that run them."""

import re
import shlex

from tests.cluster.two_hosts import ROOT

TEXT = (ROOT / "docs" / "clusters.md").read_text("utf-8")
BLOCKS = re.findall(r"^```\w+\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
ONE_HOST, TWO_HOSTS, SBATCH = BLOCKS  # each is run by a test: a fourth one needs a test of its own
LESSON = "solutions/00_ranks.py"


def launch(block: str) -> list[str]:
    """The words of a command that runs LESSON, without it: to be followed by another script."""
    *words, script = shlex.split(block.replace("\\\n", " "))
    assert script == LESSON
    return words
