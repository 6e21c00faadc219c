"""Random numbers and hashes differ between ranks and between runs; a seed repeats a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddpkit import Cluster
from ddpkit.cluster.local.hashing import needs_own_interpreters
from ddpkit.protocol.ship import pack_call
from ddpkit.trace import Trace
from tests.commands.test_run import ran

DRAWS = """
import random, sys
import numpy, torch
import torch.distributed as dist
dist.init_process_group("gloo")
drawn = [torch.rand(1).item(), numpy.random.rand(), random.random()]
sys.stdout.write(f"{dist.get_rank()} {drawn}\\n")
"""
HASHES = """
import sys
import torch.distributed as dist
dist.init_process_group("gloo")
names = [f"layer{number}.weight" for number in range(20)]
sys.stdout.write(f"{dist.get_rank()} {[hash(b'weights'), *set(names)]}\\n")
"""


def written(tmp_path: Path, code: str, *options: str, **how: str) -> tuple[dict[int, str], str]:
    """Return the text that each rank of a script wrote, and the standard error."""
    script = tmp_path / "script.py"
    script.write_text(code)
    done = ran("-n", "2", *options, script, cwd=tmp_path, **how)
    lines = (line.split(" ", 1) for line in done.stdout.splitlines())
    return {int(rank): text for rank, text in lines}, done.stderr


@pytest.mark.processes
def test_unseeded_ranks_draw_numbers_of_their_own_which_a_seed_repeats(tmp_path: Path) -> None:
    trace = tmp_path / "run.json"
    first, said = written(tmp_path, DRAWS, "--trace", str(trace))
    second, _ = written(tmp_path, DRAWS)
    drawn = [
        number for each in (first, second) for text in each.values() for number in json.loads(text)
    ]
    assert len(drawn) == len(set(drawn)) == 12
    seed = Trace.load(trace).facts["seed"]
    assert f"--seed {seed} " in said
    assert written(tmp_path, DRAWS, "--seed", str(seed))[0] == first


@pytest.mark.processes
def test_ranks_have_hash_seeds_of_their_own(tmp_path: Path) -> None:
    first, _ = written(tmp_path, HASHES, "--seed", "7")
    assert first[0] != first[1]
    names = [text.split(", ", 1)[1].rstrip("]") for text in first.values()]
    assert sorted(names[0].split(", ")) == sorted(names[1].split(", "))
    assert names[0] != names[1], "a set of names is iterated in different orders"
    assert written(tmp_path, HASHES, "--seed", "7")[0] == first
    assert written(tmp_path, HASHES)[0] != first
    shared, _ = written(tmp_path, HASHES, PYTHONHASHSEED="5")
    assert shared[0] == shared[1], "the user's own seed, as under torchrun"


@pytest.mark.processes
def test_a_cluster_gives_hash_seeds_too_and_repeats_them() -> None:
    def hashes() -> int:
        return hash(b"weights")

    cluster = Cluster(2)
    first = cluster.run(hashes).results
    assert first[0] != first[1]
    assert cluster.run(hashes).results == first
    assert not {*cluster.run(hashes, seed=1).results} & {*first}


@pytest.mark.parametrize(
    ("code", "needs"),
    [
        ("import torch\nprint(torch.rand(1))", False),
        ("seed = hash('a') % 100", True),
        ("for name in set(names): print(name)", True),
        ("for name in {*names}: print(name)", True),
        ("kept = {name for name in names}", True),
        ("if mode in {'train', 'test'}: pass", False),
        ("model.hash(1)", False),
        ("no python at all (", False),
        ("\0", False),
    ],
)
def test_a_script_is_read_for_what_depends_on_hashes(
    tmp_path: Path, code: str, needs: bool
) -> None:
    file = tmp_path / "script.py"
    file.write_text(code)
    assert needs_own_interpreters(b"", str(file), True) is needs
    assert not needs_own_interpreters(b"", str(file), False)
    assert not needs_own_interpreters(b"", str(tmp_path / "missing.py"), True)


def test_a_call_is_read_for_the_builtin_hash_alone() -> None:
    """A dataclass names `hash` in each field, and in the `__hash__` that it makes."""

    @dataclass(frozen=True)
    class Frozen:
        name: str = "weights"

    class Hashing:
        def seed(self) -> int:
            return hash(self)

    cases: list[tuple[Callable[..., object], object, bool]] = [
        (lambda name: hash(name), "", True),
        (lambda names: [hash(name) for name in names], "", True),
        (lambda names: [*map(hash, names)], "", True),
        (hash, "", True),
        (lambda _: Hashing().seed(), "", True),
        (lambda code: code.hash, "", False),
        (lambda _: Frozen().name, "", False),
        (print, Frozen("hash"), False),
    ]
    for function, argument, needs in cases:
        call = bytes(pack_call(function, (argument,), {})[0])
        assert needs_own_interpreters(call, "", False) is needs, (function, argument)
