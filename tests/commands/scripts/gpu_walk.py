"""Call each public function of torch's modules for GPUs; print the errors by name as JSON.

The arguments follow the names of the parameters. A parameter name without an argument in this file
is an error too, and so is the name of a missing class of torch.
"""

import importlib
import inspect
import json
import sys
from typing import Any

import torch
import torch.distributed as dist

MODULES = [
    *("cuda", "cuda.memory", "cuda.random", "cuda.streams", "cuda.nvtx", "cuda.profiler"),
    *("cuda.nccl", "cuda.graphs", "cuda.tunable", "cuda.comm", "cuda.gds", "cuda.green_contexts"),
    *("accelerator", "accelerator.memory"),
]
classes = {
    f"{module}.{name}"
    for module in ("cuda", "cuda.streams", "cuda.graphs", "cuda.memory")
    for name, found in vars(importlib.import_module(f"torch.{module}")).items()
    if isinstance(found, type) and found.__module__.startswith("torch.cuda")
}
dist.init_process_group("nccl")
x = torch.ones(4, 4, device="cuda")
event: Any = torch.cuda.Event(enable_timing=True)
event.record()
ARGUMENTS: dict[str, Any] = {
    **dict.fromkeys(("device", "destination", "dim", "peer_device", "dst", "src", "mode"), 0),
    **dict.fromkeys(("mem_ptr", "data_ptr", "range_id", "minor", "handle", "root", "s", "res"), 0),
    **dict.fromkeys(("size", "buffer_size", "duration", "iterations", "buffer_size_"), 64),
    **dict.fromkeys(("num_ranks", "num_gpus", "seed", "cycles", "rank"), 1),
    **dict.fromkeys(("tensor", "data", "input", "output", "buffer"), x),
    **{name: [x] for name in ("tensors", "inputs", "outputs", "sample_args")},
    **dict.fromkeys(("filename", "filename_pattern", "msg", "arch", "name", "uid"), "a.csv"),
    **dict.fromkeys(("path_to_so_file", "alloc_fn_name", "free_fn_name"), "a"),
    **dict.fromkeys(("enabled", "enable", "val", "bool"), False),
    **dict.fromkeys(("new_state", "new_states"), torch.get_rng_state()),
    **dict.fromkeys(("fwd", "bwd", "function"), print),
    "stream": torch.cuda.Stream(),
    "event": event,
    "fraction": 0.5,
    "debug_mode": 0,
    "callables": torch.nn.Linear(4, 4),
    "streams": None,
    "devices": [0],
    "allocator": None,
    "cuda_graph": None,
    "kernel_source": "int a;",
    "kernel_name": "a",
    "stream_ptr": 0,
}


def arguments(function: Any) -> dict[str, Any]:
    """Return the required arguments of a function, by name."""
    found = inspect.signature(function).parameters.values()
    needed = [each for each in found if each.default is each.empty]
    needed = [each for each in needed if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    if "devices" in inspect.signature(function).parameters:
        return {each.name: ARGUMENTS[each.name] for each in needed} | {"devices": [0]}
    return {each.name: ARGUMENTS[each.name] for each in needed}


errors, number = {}, 0
for home in MODULES:
    module = importlib.import_module(f"torch.{home}")
    for name, function in list(vars(module).items()):
        here = str(getattr(function, "__module__", "")).startswith(("torch.cuda", "torch.acc"))
        here = here or home == "cuda.comm"
        if name.startswith("_") or not here or isinstance(function, type):
            continue
        if not callable(function) or name == "check_error":
            continue
        number += 1
        try:
            given = arguments(function)
            positional = inspect.signature(function).parameters.values()
            args = [
                given.pop(each.name)
                for each in positional
                if each.kind == each.POSITIONAL_ONLY and each.name in given
            ]
            function(*args, **given)
        except Exception as error:
            if "`ddpkit run` has no replacement for" not in str(error):
                errors[f"{home}.{name}"] = f"{type(error).__name__}: {error}"
for full in classes:
    home, _, name = full.rpartition(".")
    if not isinstance(getattr(importlib.import_module(f"torch.{home}"), name), type):
        errors[full] = "a class of torch's is a function now"
print(json.dumps({"number": number, "errors": errors}, indent=1))
sys.stdout.flush()
