"""Run torch's own test bodies on the kit's group, and count the passes: real, link, machine.

    python -m benchmarks.torch_tests [--only REGEX] [--ways plain,real] [--file test_c10d_gloo.py]

The bodies come from the wheel (`torch.testing._internal.distributed.distributed_test`), or with
`--file` from a file of torch's repository. Each body runs on `--ranks` ranks: on torch's own group
(plain), and on the kit's group in real time, on a link, and on a modelled machine. Prints the
number of passes for each way, and the reasons of failures and of skips. A failure on torch's own
group is no fault of the kit: the program lists the body, and does not run the body on the kit's
group.

Many bodies share a run, since a rank needs seconds to import them. A failed run ends with the body
in progress; the next run begins with the next body. Each run has a limit of `--seconds`.

At some places torch's bodies meet by files, and no emulated clock follows a file. The program puts
a barrier into these places.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import re
import sys
import tempfile
import unittest
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks._report import machine
from ddpkit import Cluster, DdpkitError
from ddpkit.errors import RunTimeout

LINK, MODEL = "10 Gbit/s, 50 us", "1 TFLOP/s, 100 GB/s, 1 us"
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "real": {},
    "link": {"link": LINK},
    "machine": {"machine": MODEL, "link": LINK},
}
WHEEL = "torch.testing._internal.distributed.distributed_test"
BATCH = 12  # bodies in one run
FOLDERS = ("barrier", "test_dir", "init_dir")  # folders of torch's bodies


@dataclass(frozen=True)
class Outcome:
    """The end of a body in one of the WAYS: "passed", "skipped" or "failed"."""

    how: str
    why: str = ""


def environ(ranks: int, folder: Path) -> dict[str, str]:
    """Return the environment variables that the import of torch's bodies reads."""
    for name in FOLDERS:
        (folder / name).mkdir(exist_ok=True)
    return {"BACKEND": "gloo", "WORLD_SIZE": str(ranks), "TEMP_DIR": str(folder)}


def kinds(file: str) -> dict[str, Any]:
    """Return the classes with the bodies, by name, changed to run on a started rank."""
    if not file:
        wheel: Any = importlib.import_module(WHEEL)
        base = wheel.DistributedTest._DistTestBase
        wheel.Barrier.sync = classmethod(lambda *_, **__: _barrier())
        return {"DistTestBase": type("DistTestBase", (wheel.TestDistBackend, base), {})}
    sys.path.insert(0, str(Path(file).parent))
    found: Any = importlib.import_module(Path(file).stem)
    ours = {"_create_process_group_gloo": _world, "_get_process_group": _world}
    return {
        name: type(name, (kind,), ours)
        for name, kind in vars(found).items()
        if isinstance(kind, type) and hasattr(kind, "_spawn_processes")
    }


def _barrier() -> None:
    import torch.distributed as dist

    dist.barrier()


def _world(*_: Any, **__: Any) -> Any:
    import torch.distributed as dist

    return dist.group.WORLD


def names(file: str, only: str) -> list[str]:
    """Return the names of all bodies: "Class.test_name"."""
    return [
        f"{kind}.{name}"
        for kind, bodies in kinds(file).items()
        for name in dir(bodies)
        if name.startswith("test_") and re.search(only, f"{kind}.{name}")
    ]


# On a rank


def play(file: str, bodies: Sequence[str], folder: str, plain: bool) -> None:
    """Run bodies in turn, and write down the end of each body; stop at a failure."""
    import torch.distributed as dist

    rank, size = dist.get_rank(), dist.get_world_size()
    os.environ.update(environ(size, Path(folder)))
    if plain:
        become_plain(folder)
    classes = kinds(file)
    with open(Path(folder) / f"rank{rank}", "w", encoding="utf-8") as log:
        for number, body in enumerate(bodies):
            kind, _, name = body.partition(".")
            why = run_body(classes[kind], name, rank, size, Path(folder) / f"file{number}")
            how = "passed" if why is None else "skipped"
            print(json.dumps([number, how, why or ""]), file=log, flush=True)
            dist.barrier()


def run_body(kind: Any, name: str, rank: int, size: int, file: Path) -> str | None:
    """Run a body as torch's tests do in a process of their own; return why the body is skipped."""
    from torch.testing._internal.common_distributed import TEST_SKIPS
    from torch.testing._internal.common_utils import set_rng_seed

    set_rng_seed(0)  # equal on all ranks, as in the fresh processes that torch would start
    body = kind(name)
    body.rank, body.file_name = rank, str(file)
    if type(body).world_size.fget(body) != str(size):
        kind.world_size = property(lambda _: size)
    try:
        getattr(body, name)()
    except unittest.SkipTest as skipped:
        return str(skipped)
    except SystemExit as left:
        for skip in TEST_SKIPS.values():
            if left.code == skip.exit_code:
                return str(skip.message)
        raise
    return None


def become_plain(folder: str) -> None:
    """Leave the kit's group, and join a group of torch's own."""
    import torch.distributed as dist

    from ddpkit.rank.group.asked import HOMES, AskedGroups

    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    for home in HOMES:
        for name in AskedGroups.REPLACED:
            if hasattr(home, name):
                setattr(home, name, getattr(home, name).__wrapped__)
    store = dist.FileStore(str(Path(folder) / "plain"), size)
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)


# In the launcher


def outcomes(
    way: str, file: str, bodies: Sequence[str], ranks: int, seconds: float
) -> Iterator[tuple[str, Outcome]]:
    """Run bodies in one of the WAYS, and yield the end of each body."""
    cluster = Cluster(ranks, device="cpu", **WAYS[way])
    left, alone = list(bodies), False
    while left:
        batch = left[: 1 if alone else BATCH]
        with tempfile.TemporaryDirectory() as folder:
            environ(ranks, Path(folder))
            error: Exception | None = None
            try:
                cluster.run(play, file, batch, folder, way == "plain", timeout=seconds)
            except DdpkitError as failed:
                error = failed
            done = _written(Path(folder), ranks)
        yield from zip(batch, done, strict=False)
        left = left[len(done) :]
        if error is None:
            alone = False
            assert len(done) == len(batch), f"{batch[len(done)]} has left the run"
        elif isinstance(error, RunTimeout) and not alone and len(batch) > 1:
            alone = True  # the batch may have used up the time: run each body alone
        elif left:
            yield left.pop(0), Outcome("failed", reason(error))
            alone = False


def _written(folder: Path, ranks: int) -> list[Outcome]:
    """Return the ends of the first bodies, up to a body without an end on some rank."""
    ended: list[dict[int, Outcome]] = []
    for rank in range(ranks):
        log = folder / f"rank{rank}"
        lines = log.read_text("utf-8").splitlines() if log.exists() else []
        ended.append({number: Outcome(*end) for number, *end in map(json.loads, lines)})
    done: list[Outcome] = []
    while all(len(done) in each for each in ended):
        done.append(ended[0][len(done)])
    return done


def reason(error: Exception) -> str:
    """Return the reason in an error's text, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = " ".join(lines[next((n for n, line in enumerate(lines) if line[:4] == "Why:"), 0) :][:3])
    return f"{type(error).__name__}: {why[:240]}"


def main(argv: Sequence[str] | None = None) -> None:
    """Run all bodies in all ways; print the number of passes, and each failure with the reason."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="bodies whose names match this")
    parser.add_argument("--file", default="", help="a file of torch's repository with more bodies")
    parser.add_argument("--ways", default=",".join(WAYS), help="of plain, real, link, machine")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=120, help="of a run, in real time")
    given = parser.parse_args(argv)
    if importlib.util.find_spec("expecttest") is None:
        parser.error("torch's bodies import expecttest: pip install expecttest")
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(environ(given.ranks, Path(folder)))
        bodies, found = names(given.file, given.only), dict[str, dict[str, Outcome]]()
    print(f"{machine()}\n{len(bodies)} bodies on {given.ranks} ranks", flush=True)
    for way in given.ways.split(","):
        plain = found.get("plain")
        worth = [body for body in bodies if plain is None or plain[body].how == "passed"]
        found[way] = {}
        for body, outcome in outcomes(way, given.file, worth, given.ranks, given.seconds):
            found[way][body] = outcome
            if outcome.how == "failed":
                print(f"{way}: {body}\n    {outcome.why}", flush=True)
        count = {how: sum(one.how == how for one in found[way].values()) for how in HOWS}
        print(f"{way}: {', '.join(f'{n} {how}' for how, n in count.items())}", flush=True)
        skips = Counter(one.why for one in found[way].values() if one.how == "skipped")
        for why, number in skips.most_common():
            print(f"{way}: {number} skipped: {why}", flush=True)


HOWS = ("passed", "skipped", "failed")

if __name__ == "__main__":
    main()
