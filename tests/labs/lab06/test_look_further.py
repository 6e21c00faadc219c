"""The program of lab 06's "Look further", which no cell of the lab runs."""

import re

import pytest
import torch

from ddpkit import Cluster, answers
from ddpkit.authoring import parse
from ddpkit.authoring.rules import BLOCK
from tests.project.source import ROOT


@pytest.mark.processes
def test_a_watched_training_runs_as_it_is_printed(capsys):
    cells = parse(ROOT / "solutions/06_overlap.py").cells
    texts = [cell.source for cell in cells if "with live() as watch" in cell.source]
    (block,) = BLOCK.findall(texts[0])
    code = re.sub(r"^```(python)?\n?|```$", "", block, flags=re.MULTILINE)
    runs = []

    class Slow:
        def run(self, train, watch):
            runs.append(Cluster(2).run(train, watch, steps=3))

    def deep_model():
        return torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(2)))

    given = {"DistributedDataParallel": answers.get("DistributedDataParallel")}
    exec(code, {"torch": torch, "deep_model": deep_model, "slow": Slow(), **given})
    assert runs[0].trace.steps == 3
