"""Call a function of a module on each rank: `calls_a_function.py MODULE FUNCTION BACKEND`."""

import importlib
import sys

import torch.distributed as dist

module, function, backend = sys.argv[1:]
dist.init_process_group(backend)
getattr(importlib.import_module(module), function)()
if dist.is_initialized():
    dist.destroy_process_group()
