"""The wait of a rank until gloo's threads release the tensors that a collective has carried.

Here autograd stands for the threads: it saves a factor of a product, a use that Python code does
not hold.
"""

import pytest
import torch

from ddpkit.rank.group import ended
from ddpkit.rank.group.ended import LOOKS, Carried


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended, "LONGEST_S", 0.0)
    monkeypatch.setattr(ended, "PAUSE_S", 0.0)


def test_a_thread_that_gets_no_core_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    """A storage that the thread frees late would be freed at an unknown emulated time."""
    tensor, looks = torch.ones(3), []
    carried = Carried([tensor], [tensor])
    uses = [torch.ones(3, requires_grad=True) * tensor]

    def lets_go_at_the_tenth_look() -> bool:
        looks.append(bool(uses))
        if len(looks) == 10:
            uses.clear()
        return True

    monkeypatch.setattr(ended, "_gloo_gets_no_core", lets_go_at_the_tenth_look)
    carried.wait_for_gloo()
    assert looks == [True] * 10


def test_a_use_of_the_programs_own_is_not(monkeypatch: pytest.MonkeyPatch):
    tensor, looks = torch.ones(3), []
    carried = Carried([tensor], [tensor])
    product = torch.ones(3, requires_grad=True) * tensor
    answers = iter([False, True, *[False] * LOOKS])  # in one look gloo's thread seems to rest
    monkeypatch.setattr(ended, "_gloo_gets_no_core", lambda: looks.append(1) or next(answers))
    carried.wait_for_gloo()
    assert len(looks) == 2 + LOOKS
    assert product.requires_grad
