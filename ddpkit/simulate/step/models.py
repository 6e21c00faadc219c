"""Tables of known models' layers: the parameters and multiplications of each layer, without torch.

The tables follow the architectures in the papers; `Step.of_model` divides a step's compute among
the layers. The tables show when gradients become ready in the backward: in a ResNet most bytes are
ready early, in a transformer they become ready evenly.

Sources: K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR 2016,
as torchvision builds it (stride in the 3 × 3 convolution, a linear layer of 1,000 classes); J.
Devlin and others, "BERT", NAACL 2019, with the heads of its pre-training (masked words tied to the
embedding, next sentence); A. Radford and others, "Language Models are Unsupervised Multitask
Learners", 2019 (GPT-2), the output tied to the embedding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelLayer:
    """One parameter tensor: its name, its number of elements, and its multiplications in a forward.

    ``macs`` are multiplications of one sample: an image, or a sequence.
    """

    name: str
    parameters: int
    macs: int = 0


@dataclass(frozen=True, repr=False)
class ModelTable:
    """A model's parameter tensors, in the order of its forward."""

    name: str
    layers: tuple[ModelLayer, ...]

    @property
    def parameters(self) -> int:
        """The number of the model's trained parameters."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def macs(self) -> int:
        """The number of multiplications in a forward of one sample."""
        return sum(layer.macs for layer in self.layers)

    def __repr__(self) -> str:
        return (
            f"<Model {self.name}: {self.parameters:,} parameters in {len(self.layers)} tensors, "
            f"{self.macs / 1e9:.3g} G multiplications a sample>"
        )


# depth -> the number of blocks in each of the four stages, and True if a block is a bottleneck
_STAGES = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
}


def resnet(depth: int, pixels: int = 224) -> ModelTable:
    """Return the table of ResNet-18, -34 or -50 on square images.

    Raises ValueError for another depth.
    """
    if depth not in _STAGES:
        raise ValueError(f"there is no ResNet-{depth} here: choose 18, 34 or 50")
    return ModelTable(f"ResNet-{depth}", tuple(_resnet_layers(*_STAGES[depth], pixels)))


def _resnet_layers(stages: tuple[int, ...], bottleneck: bool, pixels: int) -> Iterator[ModelLayer]:
    side = pixels // 2
    yield from _conv("conv1", "bn1", 3, 64, 7, side)
    side //= 2
    channels = 64
    for stage, blocks in enumerate(stages):
        width = 64 * 2**stage
        out = width * (4 if bottleneck else 1)
        for block in range(blocks):
            name = f"layer{stage + 1}.{block}"
            wide, side = side, side // 2 if stage and not block else side
            kernels = [(1, channels, width, wide), (3, width, width, side), (1, width, out, side)]
            if not bottleneck:
                kernels = [(3, channels, width, side), (3, width, width, side)]
            for i, (kernel, before, after, at) in enumerate(kernels, 1):
                yield from _conv(f"{name}.conv{i}", f"{name}.bn{i}", before, after, kernel, at)
            if not block and channels != out:
                yield from _conv(
                    f"{name}.downsample.0", f"{name}.downsample.1", channels, out, 1, side
                )
            channels = out
    yield ModelLayer("fc.weight", channels * 1000, channels * 1000)
    yield ModelLayer("fc.bias", 1000)


def _conv(
    name: str, norm: str, before: int, after: int, kernel: int, side: int
) -> Iterator[ModelLayer]:
    weights = before * after * kernel**2
    yield ModelLayer(f"{name}.weight", weights, weights * side**2)
    yield ModelLayer(f"{norm}.weight", after)
    yield ModelLayer(f"{norm}.bias", after)


_BERT = {"base": (12, 768), "large": (24, 1024)}


def bert(size: str = "base", length: int = 128) -> ModelTable:
    """Return the table of BERT base or large, on sequences of ``length`` words.

    The table has the heads of the pre-training. Raises ValueError for another size.
    """
    if size not in _BERT:
        raise ValueError(f"there is no BERT-{size} here: choose base or large")
    blocks, width = _BERT[size]
    vocabulary = 30_522
    layers = [
        ModelLayer("embeddings.word", vocabulary * width),
        ModelLayer("embeddings.position", 512 * width),
        ModelLayer("embeddings.kind", 2 * width),
        *_norm("embeddings.norm", width),
    ]
    for block in range(blocks):
        layers += _block(f"layer.{block}", width, length)
    layers += _linear("pooler", width, width, 1)
    layers += _linear("words.dense", width, width, length)
    layers += _norm("words.norm", width)
    # The output layer shares the matrix of the embedding, and adds a bias and multiplications.
    layers += [ModelLayer("words.bias", vocabulary, vocabulary * width * length)]
    layers += _linear("next", width, 2, 1)
    return ModelTable(f"BERT-{size}", tuple(layers))


def gpt(
    blocks: int = 12, width: int = 768, length: int = 1024, vocabulary: int = 50_257
) -> ModelTable:
    """Return the table of a GPT-2.

    The paper has 12 blocks of width 768, 24 of 1024, 36 of 1280, and 48 of 1600.
    """
    layers = [ModelLayer("words", vocabulary * width), ModelLayer("positions", length * width)]
    for block in range(blocks):
        layers += _block(f"block.{block}", width, length)
    layers += _norm("norm", width)
    # The output layer shares the matrix of the embedding: the last layer gets its multiplications.
    last = layers[-1]
    layers[-1] = ModelLayer(last.name, last.parameters, vocabulary * width * length)
    return ModelTable(f"GPT of {blocks} blocks of {width}", tuple(layers))


def _block(name: str, width: int, length: int) -> list[ModelLayer]:
    """Return the tensors of a transformer block: attention, and an MLP four times as wide."""
    query, key, value = (
        _linear(f"{name}.{each}", width, width, length) for each in ("query", "key", "value")
    )
    # The value's weight also gets the multiplications of the attention, which has no parameters.
    attention = 2 * length**2 * width
    value[0] = ModelLayer(value[0].name, value[0].parameters, value[0].macs + attention)
    return [
        *query,
        *key,
        *value,
        *_linear(f"{name}.out", width, width, length),
        *_norm(f"{name}.norm1", width),
        *_linear(f"{name}.wide", width, 4 * width, length),
        *_linear(f"{name}.narrow", 4 * width, width, length),
        *_norm(f"{name}.norm2", width),
    ]


def _linear(name: str, before: int, after: int, length: int) -> list[ModelLayer]:
    weights = before * after
    return [
        ModelLayer(f"{name}.weight", weights, weights * length),
        ModelLayer(f"{name}.bias", after),
    ]


def _norm(name: str, width: int) -> list[ModelLayer]:
    return [ModelLayer(f"{name}.weight", width), ModelLayer(f"{name}.bias", width)]
