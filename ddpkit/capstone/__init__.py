"""Lab 15's task: a model, a text, a cluster of two hosts, and the score of who trains it.

model    TextModel: a small transformer, in forty lines
task     the cluster and the target; a text and a model for each seed
trained  what a training did, and what that is worth: recomputed, not believed
score    the score of a training, and the table of your own
"""

from ddpkit.capstone.model import TextModel
from ddpkit.capstone.score import TrainingScore, score
from ddpkit.capstone.task import GIVEN_MS, LINK, MACHINE, RANKS, TARGET, TextTask, floor_ms

__all__ = [
    "GIVEN_MS",
    "LINK",
    "MACHINE",
    "RANKS",
    "TARGET",
    "TextModel",
    "TextTask",
    "TrainingScore",
    "floor_ms",
    "score",
]
