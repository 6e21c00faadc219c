"""Layer tables, compared with known sizes and with a log of other people."""

import pytest

from ddpkit.data.published import RESNET_18_BUCKETS
from ddpkit.simulate import Step, assign_buckets, bert, gpt, resnet

HEADS = ("words.dense", "words.norm", "words.bias", "next")  # the heads of BERT's pre-training


@pytest.mark.parametrize(
    ("depth", "parameters", "tensors", "giga"),
    [
        (18, 11_689_512, 62, 1.81),
        (34, 21_797_672, 110, 3.66),
        (50, 25_557_032, 161, 4.09),
    ],
)
def test_resnets_are_torchvisions(depth: int, parameters: int, tensors: int, giga: float) -> None:
    """The expected parameters and GFLOPS are those that torchvision prints for its weights."""
    model = resnet(depth)
    assert (model.parameters, len(model.layers)) == (parameters, tensors)
    assert model.macs / 1e9 == pytest.approx(giga, abs=0.01)


@pytest.mark.parametrize(
    ("size", "parameters", "tensors"), [("base", 109_482_240, 199), ("large", 335_141_888, 391)]
)
def test_bert_without_its_heads_is_the_model_that_is_shared(
    size: str, parameters: int, tensors: int
) -> None:
    body = [layer for layer in bert(size).layers if not layer.name.startswith(HEADS)]
    assert (sum(layer.parameters for layer in body), len(body)) == (parameters, tensors)


def test_gpt_2s_are_as_large_as_the_ones_that_were_released() -> None:
    assert gpt().parameters == 124_439_808
    assert gpt(48, 1600).parameters == 1_557_611_200


def test_what_is_not_here_is_said() -> None:
    with pytest.raises(ValueError, match="choose 18, 34 or 50"):
        resnet(101)
    with pytest.raises(ValueError, match="choose base or large"):
        bert("huge")
    assert repr(resnet(18)) == (
        "<Model ResNet-18: 11,689,512 parameters in 62 tensors, 1.81 G multiplications a sample>"
    )


@pytest.mark.parametrize("cap", RESNET_18_BUCKETS)
def test_buckets_are_those_of_a_strangers_log(cap: int) -> None:
    step = Step.of_model(resnet(18), 100_000_000)
    buckets = assign_buckets(step.gradients, cap, first_bucket_mb=1)
    assert tuple(bucket.bytes for bucket in buckets) == RESNET_18_BUCKETS[cap]


def test_a_step_of_a_model_shares_compute_by_multiplications() -> None:
    model = resnet(50)
    step = Step.of_model(model, 300_000_000, optimizer_ns=7)
    assert (step.forward_ns, step.backward_ns, step.optimizer_ns) == (100_000_000, 200_000_000, 7)
    assert step.bytes == 4 * model.parameters
    assert step.gradients[0].name == "fc.bias"
    assert step.gradients[-1].name == "conv1.weight"
    first = step.gradients[1]
    assert first.ready_ns == 200_000_000 * model.layers[-2].macs // model.macs
