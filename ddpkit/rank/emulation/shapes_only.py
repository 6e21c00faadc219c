"""Makes copies and files of tensors without values hold only shapes, and not gigabytes of zeros.

`copy.deepcopy`, pickle, `torch.save` and `torch.distributed.checkpoint` read a tensor's memory
without the dispatcher. A large tensor without values is therefore pickled as a tensor on torch's
meta device, which has a shape, strides and a dtype. On a rank, unpickling and `torch.load` make a
tensor without values again. `torch.load` still loads the values of a file that has values.

A file of safetensors has no room for a tensor without data. So a tensor without values is absent
from the file, and the file's metadata has the tensor's dtype and shape.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import io
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ddpkit import torch_private
from ddpkit.protocol.not_computed import has_mark, is_large, mark, on_meta

if TYPE_CHECKING:
    from ddpkit.rank.emulation.device import Device
    from ddpkit.rank.emulation.places import Places

ABSENT = "ddpkit.without_values"  # key in the metadata of a file of safetensors


@contextmanager
def shapes_only(device: Device | None, places: Callable[[], Places | None]) -> Iterator[None]:
    """A block in which copies and files of large tensors without values hold shapes only.

    device  the rank's device, or None; before a tensor is read, the host waits for this device
    places  returns the places of a script's tensors, or None
    """
    said = False

    def say(frames: int) -> None:
        nonlocal said
        if not said:
            warnings.warn(
                "this run computes no values, so files get the shapes of large tensors only",
                stacklevel=frames + 2,
            )
        said = True

    def reducing(original: Callable[..., object]) -> Callable[..., object]:
        def reduce(tensor: torch.Tensor, protocol: object) -> object:
            if type(tensor) is not torch.Tensor or not is_large(tensor):
                return original(tensor, protocol)
            say(2)
            if device is not None:
                device.read(tensor)
            return original(on_meta(tensor), protocol)

        return reduce

    def cloning(original: Callable[..., Any]) -> Callable[..., object]:
        def clone(storage: torch.UntypedStorage) -> torch.UntypedStorage:
            if not has_mark(storage):
                return original(storage)  # type: ignore[no-any-return]
            new = torch.empty(storage.nbytes(), dtype=torch.uint8)
            mark(new)
            return new.untyped_storage()

        return clone

    def loading(original: Callable[..., Any]) -> Callable[..., object]:
        def load(*args: Any, **kwargs: Any) -> object:
            found = torch_private.tree_map(_off_meta, original(*args, **kwargs))
            if (known := places()) is not None:
                given = inspect.signature(original).bind(*args, **kwargs).arguments
                sample = original(_sample(), map_location=given.get("map_location"))
                leaves = torch_private.tree_leaves(found)
                tensors = [each for each in leaves if isinstance(each, torch.Tensor)]
                known.place_beside(sample, filter(is_large, tensors))
            return found

        return load

    def saving(original: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(original)
        def save(*args: object, **named: object) -> object:
            given = inspect.signature(original).bind(*args, **named)
            tensors = given.arguments["tensors"]
            absent = {name: each for name, each in tensors.items() if is_large(each)}
            if absent:
                say(1)
                shapes = {
                    name: [str(each.dtype).removeprefix("torch."), [*each.shape]]
                    for name, each in absent.items()
                }
                given.arguments["metadata"] = {
                    **(given.arguments.get("metadata") or {}),
                    ABSENT: json.dumps(shapes),
                }
                given.arguments["tensors"] = {
                    name: each for name, each in tensors.items() if name not in absent
                }
            return original(*given.args, **given.kwargs)

        return save

    with ExitStack() as undo:
        rebuilds, rebuild = torch_private.rebuilds(), torch_private.REBUILD_META
        on_torchs_meta = getattr(rebuilds, rebuild)
        undo.callback(setattr, rebuilds, rebuild, on_torchs_meta)

        @functools.wraps(on_torchs_meta)  # pickle writes torch's name of the function
        def without_values(*args: object) -> object:
            return _off_meta(on_torchs_meta(*args))

        setattr(rebuilds, rebuild, without_values)
        homes: list[tuple[object, str, Callable[..., object]]] = [
            (torch.Tensor, "__reduce_ex__", reducing),
            (torch.UntypedStorage, "clone", cloning),
            (torch, "load", loading),
        ]
        if importlib.util.find_spec("safetensors") is not None:
            library = importlib.import_module("safetensors.torch")
            homes += [(library, name, saving) for name in ("save", "save_file")]
            homes += [(library, name, _with_absent) for name in ("load", "load_file")]
        for home, name, made in homes:
            original = getattr(home, name)
            undo.callback(setattr, home, name, original)
            setattr(home, name, made(original))
        yield


def _sample() -> io.BytesIO:
    """Return a file with an empty tensor.

    `torch.load` puts this tensor on the device of all tensors that it loads.
    """
    file = io.BytesIO()
    torch.save(torch.tensor([]), file)
    file.seek(0)
    return file


def _off_meta(value: object) -> object:
    if not isinstance(value, torch.Tensor) or not value.is_meta:
        return value
    new = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    mark(new)
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(new, value.requires_grad)
    return new.requires_grad_(value.requires_grad)


def _with_absent(original: Callable[..., Any]) -> Callable[..., object]:
    """Return a `load` or `load_file` of safetensors that also makes the file's absent tensors."""

    @functools.wraps(original)
    def load(source: Any, *args: Any, **named: Any) -> object:
        found = original(source, *args, **named)
        for name, (dtype, shape) in json.loads(_metadata(source).get(ABSENT, "{}")).items():
            found[name] = torch.empty(shape, dtype=getattr(torch, dtype))
            mark(found[name])
        return found

    return load


def _metadata(source: bytes | str | Path) -> dict[str, str]:
    """Return the metadata of a safetensors file.

    The file's header is 8 bytes with the length of the JSON, and then the JSON.
    """
    if isinstance(source, bytes):
        header = source[8 : 8 + int.from_bytes(source[:8], "little")]
    else:
        with Path(source).open("rb") as file:
            header = file.read(int.from_bytes(file.read(8), "little"))
    return json.loads(header).get("__metadata__") or {}
