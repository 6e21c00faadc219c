"""The test that an answer leaves torch's global random numbers alone."""

from __future__ import annotations

from collections.abc import Callable


def touches_global_seed(call: Callable[[], object]) -> bool:
    """True if `call()` seeds torch's global random numbers, or draws from them.

    No seed gives the state of the random numbers before the call. So the function also finds an
    answer that seeds the random numbers twice, the second time with the seed of this function.
    """
    import torch

    torch.manual_seed(0)
    torch.rand(1)
    before = torch.random.get_rng_state()
    call()
    return not torch.equal(before, torch.random.get_rng_state())
