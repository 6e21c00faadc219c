"""Tensors of a cell that names no device, on ranks with a GPU.

Torch's "meta" device stands for the GPU.

tests/cluster/test_gpus.py tests real GPUs.
"""

import os
from functools import partial

import pytest
import torch

from ddpkit import Cluster
from ddpkit.rank.device import making_tensors_on


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize(
    "draw",
    [
        lambda **given: torch.randperm(9, **given),
        lambda **given: torch.rand(3, 3, **given),
        lambda **given: torch.randn(9, **given),
        lambda **given: torch.randint(5, (9,), **given),
        lambda **given: torch.normal(0.0, 1.0, (9,), **given),
    ],
)
def test_numbers_of_a_generator_come_from_where_it_is(draw):
    expected = draw(generator=seeded())
    generator = seeded()
    with making_tensors_on(torch.device("meta")):
        moved = draw(generator=generator)
        here = draw(generator=seeded(), device="cpu")
        moved_too = draw(generator=seeded(), device=None)
    assert moved.is_meta
    assert moved_too.is_meta
    assert (moved.shape, moved.dtype) == (expected.shape, expected.dtype)
    assert torch.equal(here, expected)
    assert torch.equal(generator.get_state(), after(draw).get_state())


def after(draw) -> torch.Generator:
    generator = seeded()
    draw(generator=generator)
    return generator


def test_a_leaf_stays_a_leaf():
    with making_tensors_on(torch.device("meta")):
        weight = torch.randn(3, generator=seeded(), requires_grad=True)
    assert weight.is_leaf
    assert weight.requires_grad


def test_other_tensors_are_on_the_device_and_none_behind_the_block():
    def fails() -> None:
        with making_tensors_on(torch.device("meta")):
            assert torch.zeros(2).is_meta
            assert torch.randn(2).is_meta
            raise ValueError

    with pytest.raises(ValueError, match="^$"):
        fails()
    assert not torch.zeros(2).is_meta
    assert torch.randperm(3, generator=seeded()).device.type == "cpu"


def test_a_cell_may_choose_another_default():
    with making_tensors_on(torch.device("meta")):
        torch.set_default_device("cpu")
        drawn, made = torch.randperm(3, generator=seeded()), torch.zeros(2)
    assert [drawn.device.type, made.device.type, torch.zeros(2).device.type] == ["cpu"] * 3


def test_tensors_that_are_given_say_the_device():
    mean = torch.zeros(4)
    with making_tensors_on(torch.device("meta")):
        drawn = torch.normal(mean, torch.ones(4, device="cpu"), generator=seeded())
    assert torch.equal(drawn, torch.normal(mean, torch.ones(4), generator=seeded()))


@pytest.mark.processes
def test_an_emulated_rank_sees_no_gpu(monkeypatch: pytest.MonkeyPatch):
    """FSDP2, PowerSGD and other code would put tensors on a GPU that is visible."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    seen = partial(os.getenv, "CUDA_VISIBLE_DEVICES")
    assert Cluster(1, link="1 Gbit/s").run(seen).results == [""]
    assert Cluster(1).run(seen).results == ["0,1"]
