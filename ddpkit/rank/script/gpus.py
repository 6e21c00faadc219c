"""The stand-in GPUs of a rank that has no GPU, and the tensors on such a GPU."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import torch
from torch import nn

from ddpkit import torch_private
from ddpkit.rank.emulation.held import DEVICE, HOST, UNDECIDED
from ddpkit.rank.group import placed
from ddpkit.source import is_user_file

if TYPE_CHECKING:
    from ddpkit.rank.emulation.places import Places

T = TypeVar("T")

# Parts of torch's errors on a machine without a GPU; ddpkit adds an explanation.
WANTS_A_GPU = (
    *("Cannot access accelerator device", "Tried to instantiate dummy base class"),
    *("not linked with support for cuda", "Torch not compiled with CUDA", "No CUDA GPUs"),
    *("only work with GPU modules", "on supported devices: ['cuda'", "Found no NVIDIA driver"),
    *("ATen_cuda", "device type cuda", "__cuda_array_interface__", "cufft_plan_cache"),
    *("'torch.cuda' has no attribute", "has no attribute '_cuda"),
    *("has no attribute '_nccl", "attribute 'ProcessGroupNCCL'", "inputs to be on GPUs"),
    *("No viable backend for scaled_dot_product", "Storage device not recognized: cuda"),
    "Jiterator is only supported on CUDA",
    "arguments from the 'CPU' backend",
    *("'torch._C' has no attribute", "nvidia-ml-py does not seem to be installed"),
)
WAYS = (  # a part of an error, and a way round
    ("from the 'CPU' backend", "The CPU has no kernel of this operation. "),
    ("Cannot access accelerator device", 'Write torch.device("cuda", index). '),
    ("__cuda_array_interface__", "Hand over tensor.numpy(). "),
    ("cufft_plan_cache", "Leave the call out. "),
    ("No viable backend", "Pad the sequences with to_padded_tensor, or pass each sequence alone. "),
    ("Storage device", "Make a tensor, and call its untyped_storage(). "),
    ("device type cuda", "Call dist's functions instead of the backend's methods. "),
)


def refusal(call: str, reason: str) -> str:
    """Return the error's sentence for a refused call."""
    return f"`ddpkit run` has no replacement for {call}: {reason}"


def wants_a_gpu(text: str) -> bool:
    """True if the text of an error says that torch has no GPU."""
    return any(part in text for part in WANTS_A_GPU)


def on_a_gpu(device: object) -> bool:
    """True if `device` names a GPU, such as "cuda:0", torch.device("cuda"), or a number."""
    if isinstance(device, str):
        return device.partition(":")[0] == "cuda"
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


class Gpus:
    """The stand-in GPUs of a rank that has no GPU. At the first use, rank 0 prints `why`.

    places  the memories of an emulated device and its host, if the machine has a device
    """

    def __init__(self, why: str, places: Places | None = None) -> None:
        self._why, self._said, self.places = why, set[str](), places
        self.current = 0  # the chosen GPU

    @property
    def is_used(self) -> bool:
        """True once the script has used a GPU."""
        return bool(self._said)

    def used(self) -> None:
        """Record that the script uses a GPU."""
        if not self._said:
            self.say_once(f"{self._why}: cuda means the CPU")
            if self.places is not None:
                self.places.tell_apart()

    def say_once(self, text: str) -> None:
        """Print a text on rank 0, once for all calls with this text."""
        if text not in self._said and os.environ.get("RANK") == "0":
            print(f"ddpkit run: {text}", file=sys.stderr)
        self._said.add(text)

    def explain(self, error: BaseException) -> None:
        """Add a note with the line and an alternative to torch's error about a missing GPU."""
        text = str(error)
        if not wants_a_gpu(text):
            return
        lines = [
            each
            for each in traceback.extract_tb(error.__traceback__)
            if is_user_file(each.filename)
        ]
        where = ""
        if lines:
            where = f"{os.path.basename(lines[-1].filename)}, line {lines[-1].lineno}: "
        way = next((way for part, way in WAYS if part in text), "")
        error.add_note(
            f"ddpkit run: {where}{self._why}, but this call needs a real GPU. {way}docs/run.md, "
            '"Where there is no GPU", lists the calls that work without a GPU.'
        )

    def means(self, device: object) -> bool:
        """True if `device` names a stand-in GPU; if so, record that the script uses a GPU."""
        if not on_a_gpu(device):
            return False
        self.used()
        return True

    def take(self, tensor: torch.Tensor, *, non_blocking: bool = False) -> torch.Tensor:
        """Return a copy of a tensor on a GPU, or the tensor itself if it is already on a GPU."""
        if not is_plain(tensor) or self.has(tensor):
            return tensor
        if self.places is None:
            return self.mark(tensor.clone())
        return self.mark(self.places.take(tensor, non_blocking=non_blocking))

    def bring(self, tensor: torch.Tensor, *, non_blocking: bool = False) -> torch.Tensor:
        """Return a copy of an emulated GPU's tensor in the host's memory."""
        assert self.places is not None
        made = self.places.bring(tensor, non_blocking=non_blocking)
        placed.unmark(made)
        return made

    def fetch(self, tensor: torch.Tensor, given: torch.Tensor, *, by_torch: bool) -> torch.Tensor:
        """Return the script's result of `given.cpu()`; `tensor` is torch's own result."""
        if not self._said or not is_plain(given):
            return tensor
        if not same(tensor, given):
            if is_plain(tensor):
                placed.unmark(tensor)
            return tensor
        made_here = given.is_leaf and given.requires_grad  # made by the script, on the CPU
        if self.places is None and (placed.is_marked(given) or not (by_torch or made_here)):
            tensor = tensor.clone()
            placed.unmark(tensor)
        return tensor

    def has(self, tensor: torch.Tensor) -> bool:
        """True if a plain tensor is known to be on a GPU."""
        return placed.is_marked(tensor) if self.places is None else self.places.is_on_device(tensor)

    def holds(self, tensor: object) -> bool:
        """True if a tensor is on an emulated GPU; False before the script's first use of a GPU."""
        return (
            bool(self._said) and self.places is not None and is_plain(tensor) and self.has(tensor)
        )

    def mark(self, tensor: T) -> T:
        """Mark a tensor as being on a GPU, without a copy; return the tensor."""
        if is_plain(tensor):
            placed.mark(tensor)
            if self.places is not None:
                self.places.place(tensor, DEVICE)
        return tensor

    def mark_storage(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        """Mark a storage as being on a GPU, without a copy; return the storage."""
        setattr(storage, placed.MARK, True)
        if self.places is not None:
            self.places.place(torch.empty(0, dtype=torch.uint8).set_(storage), DEVICE)
        return storage

    def making(self, *, on_gpu: bool, named: bool, by_torch: bool) -> AbstractContextManager[None]:
        """A block in which torch makes a tensor: `named` is True if the call names a device."""
        if self.places is None:
            return nullcontext()
        place = DEVICE if on_gpu else UNDECIDED if by_torch else HOST
        return self.places.making(place, named=named and bool(place))


def is_plain(tensor: Any) -> TypeGuard[torch.Tensor]:
    """True for a dense tensor with a storage on the CPU; False for a DTensor or a fake tensor."""
    plain = type(tensor) in (torch.Tensor, nn.Parameter, nn.Buffer)
    return plain and tensor.layout == torch.strided and tensor.is_cpu


def same(one: object, other: torch.Tensor) -> bool:
    return is_plain(one) and _storage(one) == _storage(other)


def _storage(tensor: torch.Tensor) -> int:
    return torch_private.storage_id(tensor.untyped_storage())
