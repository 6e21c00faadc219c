"""Lab 15's task: a model, a language, a cluster of two hosts, and the score of a training.

language  Language: four dialects, random Markov chains of letters with known entropy
model     TextModel: a small transformer, in forty lines
task      the cluster; a language, shards of its text and a model for each seed
trained   the ranks' claim about a training, and the outcome recomputed from the claim
score     the score of a training, and the table of a student's scores
picture   a plot of the costs of a student's scores
"""

from ddpkit.capstone.language import Language
from ddpkit.capstone.model import TextModel
from ddpkit.capstone.picture import show_costs
from ddpkit.capstone.score import TrainingScore, score
from ddpkit.capstone.task import GIVEN_MS, LINK, MACHINE, MEMORY, RANKS, TextTask, floor_ms

__all__ = [
    "GIVEN_MS",
    "LINK",
    "MACHINE",
    "MEMORY",
    "RANKS",
    "Language",
    "TextModel",
    "TextTask",
    "TrainingScore",
    "floor_ms",
    "score",
    "show_costs",
]
