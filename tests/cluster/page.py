"""The commands of docs/clusters.md, for the tests that run them."""

import re
import shlex

from tests.cluster.two_hosts import ROOT

TEXT = (ROOT / "docs" / "clusters.md").read_text("utf-8")
BLOCKS = re.findall(r"^```\w+\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
ONE_HOST, TWO_HOSTS, SBATCH = BLOCKS  # a test runs each: a fourth needs another test
LESSON = "solutions/00_ranks.py"


def launch(block: str) -> list[str]:
    """Return the words of a command that runs LESSON, so that another script can follow."""
    *words, script = shlex.split(block.replace("\\\n", " "))
    assert script == LESSON
    return words
