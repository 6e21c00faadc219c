"""Checks refuse answers that remove the kit's dispatch modes, or hide operations from the modes."""

import threading
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.flop_counter import FlopCounterMode

from ddpkit.errors import RankError
from ddpkit.exercises.raised import trouble_of
from ddpkit.exercises.ranks import call
from ddpkit.rank.modes_on import ModesOff, modes_stay_on


def disabled():
    return _disable_current_modes()


def popped():
    return _python_dispatch._pop_mode_temporarily()


def popped_by_c():
    return nullcontext(torch._C._pop_torch_dispatch_stack(None))


def deprecated_guard():
    return nullcontext(torch._C._DisableTorchDispatch())


def excluded_key():
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.Python)
    return torch._C._ExcludeDispatchKeyGuard(keys)


WAYS = (disabled, popped, popped_by_c, deprecated_guard, excluded_key)


def hides(way):
    with way():
        torch.ones(2) @ torch.ones(2)


@pytest.mark.processes("some")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_way_to_hide_from_modes_is_refused(way):
    with pytest.raises(RankError) as caught:
        call(hides, way, world_size=2, machine="1 GFLOP/s")
    assert trouble_of(caught.value).kind == "modes off", caught.value


class Shown(torch.Tensor):
    """A tensor that computes while torch prints it."""

    @property
    def requires_grad(self):
        hidden.append(torch.ones(20, 20) @ torch.ones(20, 20))
        return False


hidden = []


def prints():
    return f"{torch.ones(2)} {torch.ones(2).as_subclass(Shown)!r} {len(hidden) > 0}"


@pytest.mark.processes("some")
def test_no_operation_hides_in_the_printing_of_a_tensor():
    """Torch removes all modes while it prints, and calls code of the tensor's class."""
    with FlopCounterMode(display=False) as counted, modes_stay_on():
        text = prints()
    assert text.startswith("tensor([1., 1.])")
    assert text.endswith("True")
    assert counted.get_total_flops() == 2 * 20**3 * len(hidden)
    did = call(prints, world_size=1, machine="1 GFLOP/s")
    begin, end = did.trace.window_of(0)
    assert end - begin >= 2 * 20**3  # ns: the product's FLOPs at 1 GFLOP/s


def uses_modes():
    """Count with torch's own mode, take the mode off, compile a function, and send a tensor."""
    with FlopCounterMode(display=False) as counted:
        torch.ones(2, 2) @ torch.ones(2, 2)
        with _python_dispatch._pop_mode_temporarily():
            torch.ones(2, 2) @ torch.ones(2, 2)
    doubled = torch.compile(lambda x: 2 * x, backend="eager")(torch.ones(1))
    # ddpkit's modes enter and leave in the other thread too
    thread = threading.Thread(target=torch.ones, args=(2,))
    thread.start()
    thread.join()
    dist.all_reduce(doubled)
    return counted.get_total_flops(), doubled.item()


@pytest.mark.processes("some")
def test_modes_of_the_users_come_and_go():
    did = call(uses_modes, world_size=2, machine="1 GFLOP/s")
    assert did.returned == [(16, 4.0)] * 2


class Kits(TorchDispatchMode):
    __module__ = "ddpkit.tests"

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_a_mode_stays_on_and_torch_is_as_before():
    before = torch._C._pop_torch_dispatch_stack, torch._C._DisableTorchDispatch.__init__
    with Kits() as mode:
        with modes_stay_on(), pytest.raises(ModesOff, match="_pop_torch_dispatch_stack"):
            torch._C._pop_torch_dispatch_stack(None)
        assert torch._C._get_dispatch_stack_at(0) is mode
    assert torch._C._pop_torch_dispatch_stack is before[0]
    assert torch._C._DisableTorchDispatch.__init__ is before[1]


def test_a_tensor_can_be_printed():
    x = torch.ones(2)
    with Kits() as mode:
        with modes_stay_on():
            assert str(x) == "tensor([1., 1.])"
        assert torch._C._get_dispatch_stack_at(0) is mode
