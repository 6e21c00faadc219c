"""The kit's answers, by the name of the exercise.

Generated from solutions/*.py by `make release`; do not edit.
"""

from importlib import import_module
from typing import Any

LABS: dict[str, str] = {
    "Asynchronous": "lab08",
    "Bounded": "lab08",
    "Copied": "lab12",
    "DistributedDataParallel": "lab06",
    "Gathered": "lab12",
    "GradientBuckets": "lab05",
    "Halo": "lab12",
    "Reducer": "lab06",
    "Scattered": "lab12",
    "SlicedMLP": "lab12",
    "Summed": "lab12",
    "Synchronous": "lab08",
    "accumulate": "lab01",
    "adasum": "lab09",
    "all_gather": "lab02",
    "all_to_all": "lab03",
    "assign_buckets": "lab05",
    "autotune": "lab09",
    "average": "lab06",
    "average_by_gather": "lab04",
    "average_flat": "lab04",
    "average_per_parameter": "lab04",
    "barrier": "lab02",
    "best_cap": "lab05",
    "broadcast": "lab02",
    "broadcast_parameters": "lab04",
    "bubble": "lab11",
    "butterfly": "lab03",
    "expected_hours": "lab09",
    "fit": "lab09",
    "fit_link": "lab02",
    "flatten": "lab05",
    "gather": "lab02",
    "global_norm": "lab12",
    "gpipe": "lab11",
    "gradients_of": "lab04",
    "master_worker": "lab03",
    "minibatches": "lab01",
    "no_sync": "lab06",
    "noise_scale": "lab09",
    "one_f_one_b": "lab11",
    "pipeline_step": "lab11",
    "plan": "lab09",
    "predict": "lab03",
    "pull": "lab08",
    "push": "lab08",
    "rebuilt_buckets": "lab06",
    "reduce": "lab02",
    "reduce_scatter": "lab02",
    "ring": "lab03",
    "rnn_layer": "lab11",
    "round_robin": "lab03",
    "scatter": "lab02",
    "seconds_per_round": "lab08",
    "serve": "lab08",
    "servers": "lab09",
    "sgd_step": "lab01",
    "shard": "lab04",
    "split_backward": "lab11",
    "step_time": "lab09",
    "ticks": "lab11",
    "token_ring": "lab00",
    "train": "lab04",
    "tree": "lab03",
    "unflatten": "lab05",
    "unused_parameters": "lab06",
    "who_waits": "lab00",
}

# The stem of each lab's notebook, and the minutes that it takes.
TITLES: dict[str, tuple[str, str]] = {
    "lab00": ("00_ranks", "30"),
    "lab01": ("01_sgd", "40"),
    "lab02": ("02_collectives", "90"),
    "lab03": ("03_all_reduce", "90"),
    "lab04": ("04_data_parallel", "70"),
    "lab05": ("05_bucketing", "60"),
    "lab06": ("06_overlap", "90"),
    "lab08": ("08_parameter_server", "90"),
    "lab09": ("09_scaling", "90"),
    "lab11": ("11_pipeline", "85"),
    "lab12": ("12_slices", "85"),
}


def get(name: str) -> Any:
    """The kit's answer to an exercise: a function or a class. KeyError: no such exercise."""
    return getattr(import_module(f"{__name__}.{LABS[name]}"), name)
