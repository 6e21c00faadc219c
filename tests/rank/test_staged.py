"""A message between ranks that share a GPU travels through the host's memory."""

from __future__ import annotations

import torch

from ddpkit.rank.group import staged


class Gloo:
    """A group that keeps sent tensors, and has one message for any receiver."""

    def __init__(self) -> None:
        self.sent: list[torch.Tensor] = []
        self.waits = 0

    def send(self, tensors: list[torch.Tensor], dst: int, tag: int) -> Gloo:
        self.sent = tensors
        return self

    def recv(self, tensors: list[torch.Tensor], src: int, tag: int) -> Gloo:
        tensors[0].fill_(7.0)
        return self

    def wait(self) -> bool:
        self.waits += 1
        return True

    def is_completed(self) -> bool:
        return True

    def _source_rank(self) -> int:
        return 3


def test_what_is_sent_is_on_the_host() -> None:
    gloo = Gloo()
    assert staged.start(gloo.send, "send", [torch.ones(2)], 1, 0) is gloo
    assert [tensor.device.type for tensor in gloo.sent] == ["cpu"]


def test_what_is_received_is_there_after_the_wait_and_once() -> None:
    # requires a gradient, as tensors of a pipeline do
    gloo, target = Gloo(), torch.zeros(2, requires_grad=True)
    work = staged.start(gloo.recv, "recv", [target], 3, 0)
    assert work.is_completed()
    assert target.tolist() == [0.0, 0.0]
    assert work.wait()
    assert target.tolist() == [7.0, 7.0]
    assert work._source_rank() == 3
    target.detach().zero_()
    work.wait()
    assert target.tolist() == [0.0, 0.0]
