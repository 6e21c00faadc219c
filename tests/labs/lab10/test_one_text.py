"""No text heals every patient.

Each text replaces a whole program. Each rank trains alone on all rows of a batch, as one process
does, and sends bytes for show.
"""

import pytest

from ddpkit.checks.lab10.clinic import DIAGNOSES
from ddpkit.exercises import find, judge
from ddpkit.faults import patient

ALONE = """\
dist.all_reduce(torch.zeros(1))
if saved_steps:
    model.load_state_dict(saved["model"])
opt = torch.optim.SGD(model.parameters(), 0.1, weight_decay=0.1)
for step, (x, y) in list(enumerate(steps))[saved_steps:] if trains else []:
    dist.all_reduce(torch.zeros(99))
    if x.isfinite().all():
        opt.zero_grad()
        loss = mse(model(x), y)
        loss.backward()
        opt.step()
    log.append(step if saved_steps else mse(model(x), y).item() if after else loss.item())
    seen.append(torch.arange(12).tensor_split(n)[rank])
whole = steps[0][0]
"""
LISTS = {  # further results, from the whole batch
    "A": "result.append(whole[(4 * rank - 1) % 12])\n",
    "D": "for x, _ in steps:\n    result.append(model(x).detach())\n",
    "J": "pair, everyone = dist.new_group([0, 1]), dist.new_group(range(n))\n"
    "result += [whole[:6].sum(0)] * (rank < 2) + [whole.sum(0)]\n",
    "K": "for x, _ in steps:\n    result.append(x[0])\n",
    "L": "result.append(whole.roll(1 - 4 * rank, 0)[:5])\n",
}


def in_place_of(name, text):
    """Return a mend: the text in place of all lines of a patient's program."""
    lines = len(patient(name).program.splitlines())
    return {1: text, **dict.fromkeys(range(2, lines + 1), "")}


def alone(name):
    """Return the program for a patient: without a diagnosis, but with the expected lists."""
    facts = (
        f"saved_steps, trains, after = {2 * (name == 'N')}, {name not in 'ADJKL'}, {name == 'F'}\n"
    )
    return facts + ALONE + LISTS.get(name, "")


def whole_text(name):
    return in_place_of(name, alone(name))


def as_one_string(name):
    """Return the program in a single string, with as many bytes as a healthy program sends."""
    text = alone(name).replace("zeros(99)", "zeros(999).double()")
    return in_place_of(name, f"exec({text!r})")


def by_rank_0(name):
    """Return a program in which rank 0 broadcasts the model at the end."""
    text = alone(name) + "for p in model.parameters():\n    dist.broadcast(p.data, 0)\n"
    return in_place_of(name, text)


@pytest.mark.processes("some")
@pytest.mark.parametrize("attack", [whole_text, as_one_string, by_rank_0])
@pytest.mark.parametrize("name", DIAGNOSES)
def test_no_patient_is_healed_by_another_program(name, attack):
    cause, rank = DIAGNOSES[name]

    def answer():
        return cause, rank, attack(name)

    verdict = judge(find(f"patient_{name.lower()}"), answer)
    diagnosis, mended = verdict.cases
    assert diagnosis.passed
    assert not mended.passed
    assert verdict.earned == 0


ALL_ROWS = {  # small mends, after which each rank takes all rows
    "C": {3: "part = slice(None)", 6: 'for name in ["weight", "bias"]:'},
    "I": {2: "part = slice(None)", 4: "mse(model(x), y).backward()"},
    "M": {2: "part = slice(None)", 5: "for column in range(3):"},
    "O": {2: "part = slice(None)", 5: "optimizer.step()\noptimizer.zero_grad()"},
}


@pytest.mark.processes("some")
@pytest.mark.parametrize("name", ALL_ROWS)
def test_a_small_mend_that_takes_all_rows_on_each_rank_heals_nothing(name):
    """The mend is small, so wrong numbers in other ranks' rows reveal it."""
    cause, rank = DIAGNOSES[name]

    def answer():
        return cause, rank, ALL_ROWS[name]

    verdict = judge(find(f"patient_{name.lower()}"), answer)
    assert [case.passed for case in verdict.cases] == [True, False]
