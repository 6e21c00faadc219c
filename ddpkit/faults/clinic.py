"""Programs with one classic fault each. A student runs, diagnoses and mends a program."""

from __future__ import annotations

import difflib
import io
import linecache
import textwrap
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpkit.cluster import Cluster, Run
from ddpkit.errors import LessonError
from ddpkit.faults.patients import ILL
from ddpkit.protocol.per_rank import PerRank
from ddpkit.rank import compiler

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

Mend = Mapping[int, str]  # number of a line, counted from 1 -> the new text of the line

RUNS_WITH = """\
rank, n                   this rank, and the number of ranks
steps                     for each step the whole batch: 12 images x of 3 numbers, and their y
strip                     patients A, J, L: this rank's rows of a picture of 12
model, build(), mse       Linear(3, 1) with one buffer, the same on all ranks; another, random one;
                          the loss
optimizer                 SGD with weight decay
average(model)            replaces all gradients by their mean over the ranks
settings, generator       this rank's settings; the same random numbers on all ranks
saved                     patient N: a checkpoint, {"step": 2, "model": its parameters by then}
log, seen, result         lists: losses, numbers of images, tensors"""

IMAGES, STEPS, LR, DECAY = 12, 4, 0.1, 0.1
SAVED = 2  # number of steps before patient N's job was killed


@dataclass(frozen=True)
class Patient:
    """A program of the clinic. `print` shows the numbered lines; `run()` shows the symptoms."""

    name: str
    ranks: int
    program: str

    def __str__(self) -> str:
        lines = self.program.splitlines()
        return "\n".join(f"{number:2}  {line}" for number, line in enumerate(lines, 1))

    def mended(self, mend: Mend) -> Patient:
        """Return the patient with new lines, such as ``{3: "dist.barrier()", 4: ""}``.

        A new line gets the indentation of the old line. Raises LessonError if a key is not the
        number of a line, or a value is not a text.
        """
        lines = self.program.splitlines()
        if not isinstance(mend, Mapping):
            raise LessonError(
                f'Give the new lines as a dict, {{3: "the new line 3"}}, not as {mend!r}.'
            )
        for number, new in mend.items():
            if type(number) is not int or not 1 <= number <= len(lines):
                raise LessonError(
                    f"Patient {self.name} has the lines 1 to {len(lines)}, but no line {number!r}."
                )
            if not isinstance(new, str):
                raise LessonError(f"The new line {number} must be a text, not {new!r}.")
        kept = [
            textwrap.indent(textwrap.dedent(mend[number]), _indentation(line))
            if number in mend
            else line
            for number, line in enumerate(lines, 1)
        ]
        return Patient(self.name, self.ranks, "\n".join(kept) + "\n")

    def words_of(self, mended: Patient) -> int:
        """Return the number of new tokens (words, signs, numbers) in a mended program.

        A string counts by its length, since a string may hold a program.
        """
        before, after = _words(self.program), _words(mended.program)
        matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
        new = [
            word
            for tag, _, _, begin, end in matcher.get_opcodes()
            if tag in ("insert", "replace")
            for word in after[begin:end]
        ]
        return sum(max(1, len(word) // WORD) for word in new)

    def run(self, seed: int = 0, *, expect_error: bool = True) -> Run[dict[str, Any]]:
        """Run the program on the patient's ranks. If the program ends, print a report.

        Each rank's result has the lists of `RUNS_WITH`, and the parameters of `model` before and
        after the program. With ``expect_error=False``, raises RunFailed if the run fails, and
        prints no report.
        """
        remember(self.name, self.program)
        begins = PerRank(starts(self.name, seed, self.ranks))
        cluster = Cluster(self.ranks, device="cpu")
        cluster.tells = False  # no explanation, because the diagnosis is the student's work
        run = cluster.run(live, self.program, self.name, begins, expect_error=expect_error)
        if expect_error and run.error is None and None not in run.results:
            print(_report(run.results))
        return run


WORD = 12  # characters: a string literal counts as one word for each WORD characters


def _words(program: str) -> list[str]:
    """Return the tokens of a program without comments; its lines if it is not valid Python."""
    blank = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    try:
        found = list(tokenize.generate_tokens(io.StringIO(program).readline))
    except (tokenize.TokenError, SyntaxError):
        return program.splitlines()
    return [each.string for each in found if each.type not in (*blank, tokenize.COMMENT)]


def patient(name: str) -> Patient:
    """Return the patient called `name`. Raises LessonError for an unknown name."""
    if name not in ILL:
        raise LessonError(f"There is no patient {name!r}: the patients are {', '.join(ILL)}.")
    return Patient(name, *ILL[name])


@dataclass(frozen=True)
class Start:
    """The start values of a program on a rank; the seed and the peers' values are kept secret."""

    steps: list[tuple[Tensor, Tensor]]
    model: nn.Module
    another: nn.Module  # the model that `build()` returns
    saved: dict[str, object]
    numbers: int  # the seed of `generator`, alike on all ranks


def starts(name: str, seed: int, ranks: int, *, apart: bool = False) -> list[Start]:
    """Return the start values of each rank for the program of patient `name`.

    With `apart`, a rank gets the true numbers only in the rank's own rows of a batch. The remaining
    rows hold random numbers, so a rank trained alone on all rows ends with a wrong model.
    """
    import torch

    saved = {"step": SAVED, "model": one_process(seed, SAVED).state_dict()}
    generator = torch.Generator().manual_seed(seed + 1)
    found = []
    for rank in range(ranks):
        steps = data(seed, name)
        if apart and name not in ANY_ROW and (name, rank) != ("F", 0):
            steps = [_own_rows(x, y, rank, ranks, generator) for x, y in steps]
        found.append(Start(steps, build(seed), build(seed + rank), saved, seed % 1000))
    return found


ANY_ROW = "G"  # patients in which a rank may take any row of a batch


def _own_rows(
    x: Tensor, y: Tensor, rank: int, ranks: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the batch with random numbers in the rows of the peers."""
    import torch

    others_x = torch.randn(x.shape, generator=generator, dtype=x.dtype)
    others_y = torch.randn(y.shape, generator=generator, dtype=y.dtype)
    mine = torch.arange(len(x)).tensor_split(ranks)[rank]
    others_x[mine], others_y[mine] = x[mine], y[mine]
    return others_x, others_y


def live(program: str, name: str, begins: Start) -> dict[str, Any]:
    """Run a program of the clinic on a rank, and return its lists and the model's parameters."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    rank, n = dist.get_rank(), dist.get_world_size()
    steps, model = begins.steps, begins.model
    strip = steps[0][0].tensor_split(n)[rank].clone()
    names = ["weight", "bias"]
    found: dict[str, Any] = {
        "torch": torch,
        "dist": dist,
        "DistributedDataParallel": DistributedDataParallel,
        "rank": rank,
        "n": n,
        "steps": steps,
        "strip": strip,
        "model": model,
        "mse": torch.nn.functional.mse_loss,
        "average": _average,
        "build": lambda: begins.another,
        "optimizer": torch.optim.SGD(model.parameters(), LR, weight_decay=DECAY),
        "settings": {
            "average": names[::-1] if rank == 2 else names,
            "columns": [2, 0, 1] if rank == 1 else [0, 1, 2],
        },
        "saved": begins.saved,
        "generator": torch.Generator().manual_seed(begins.numbers),
        "log": [],
        "seen": [],
        "result": [],
    }
    before = vector(model)
    exec(compile(program, remember(name, program), "exec"), found)
    lists = {each: found[each] for each in ("log", "seen", "result")}
    return {"before": before, "model": vector(found["model"]), **lists}


# Values given to the programs


def data(seed: int, name: str = "") -> list[tuple[Any, Any]]:
    """Return the batches (x, y) of a patient's run.

    Patient D's last batch lacks an image. Patient E's second batch ends with a broken image.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(STEPS, IMAGES, 3, generator=generator, dtype=torch.float64)
    y = x.sum(2, keepdim=True) + 1
    if name == "E":
        x[1, -1] = torch.nan
    steps = list(zip(x, y, strict=True))
    if name == "D":
        steps[-1] = (x[-1][:-1], y[-1][:-1])
    return steps


def build(seed: int) -> nn.Module:
    """Return a model with random parameters from the seed, the same in every process."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = torch.nn.Linear(3, 1).double()
    model.register_buffer("batches", torch.zeros(1))
    return model


def vector(model: nn.Module) -> Tensor:
    """Return all parameters of a model in one flat tensor."""
    import torch

    return torch.cat([p.detach().flatten() for p in model.parameters()])


def _average(model: Any) -> None:
    import torch
    import torch.distributed as dist

    gradients = [p.grad for p in model.parameters()]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    sizes = [gradient.numel() for gradient in gradients]
    for gradient, mean in zip(gradients, torch.split(flat, sizes), strict=True):
        gradient.copy_(mean.reshape(gradient.shape))


# The report about a finished run


@compiler.absent()
def one_process(seed: int, steps: int = STEPS) -> nn.Module:
    """Return the model of a seed, trained in one process for `steps` steps on whole batches."""
    import torch

    model = build(seed)
    optimizer = torch.optim.SGD(model.parameters(), LR, weight_decay=DECAY)
    for x, y in data(seed)[:steps]:
        optimizer.zero_grad()
        loss: Any = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    return model


def _report(ranks: list[dict[str, Any]]) -> str:
    import torch

    alike = all(torch.equal(each["model"], ranks[0]["model"]) for each in ranks)
    lines = ["It ends. All ranks have the same model." if alike else "It ends. The models differ:"]
    for rank, each in enumerate(ranks):
        seen = [part.tolist() for part in each["seen"] if isinstance(part, torch.Tensor)]
        if not alike:
            lines.append(f"  rank {rank}: {_rounded(each['model'])}")
        if seen:
            lines.append(f"  rank {rank}, first step: images {seen[0]}")
        lines += [f"  rank {rank}, result: {_rounded(one)}" for one in each["result"]]
    right, start = vector(one_process(0)), ranks[0]["before"]
    moved = ranks[0]["model"] - start
    if moved.any():
        lines.append(f"  rank 0's parameters have moved by      {_rounded(moved)}")
        lines.append(f"  in one process, of whole batches, by   {_rounded(right - start)}")
    return "\n".join(lines)


def _rounded(numbers: Tensor) -> list[object]:
    """Return a tensor's numbers with three decimals; a list of rows for a table."""
    if numbers.dim() > 1:
        return [_rounded(row) for row in numbers]
    return [round(value, 3) for value in numbers.tolist()]


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def remember(name: str, program: str) -> str:
    """Return the file name of a patient's program, and let errors quote the program's lines."""
    filename = f"patient_{name}.py"
    linecache.cache[filename] = (len(program), None, program.splitlines(True), filename)
    return filename
