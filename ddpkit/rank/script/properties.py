"""The properties of a stand-in GPU: compute capability, multiprocessors and cache."""

from __future__ import annotations

from types import SimpleNamespace

from ddpkit.rank.emulation.capability import capability_of

CAPABILITY = (8, 0)  # the numbers of an A100, for a machine without a known GPU
# Streaming multiprocessors, bytes of the L2 cache: NVIDIA's white papers on Volta, Turing, Ampere
# and Hopper. A machine without an entry has a single multiprocessor and no cache.
PROCESSORS = {
    "V100": (80, 6 << 20),
    "T4": (40, 4 << 20),
    "A100": (108, 40 << 20),
    "H100": (132, 50 << 20),
    "H100 PCIe": (114, 50 << 20),
    "H200": (132, 50 << 20),
}


def told_capability(name: str) -> tuple[int, int]:
    """Return the compute capability that the script gets for a machine of this name."""
    return capability_of(name) or CAPABILITY


def properties(name: str, memory: int, title: str) -> SimpleNamespace:
    """Return the properties of a GPU.

    name    the machine's name, such as "A100 80GB"
    memory  the GPU's memory, in bytes
    title   the GPU's name, as the script gets it
    """
    number, cache = PROCESSORS.get(name) or PROCESSORS.get(name.partition(" ")[0], (1, 0))
    major, minor = told_capability(name)
    return SimpleNamespace(
        name=title,
        major=major,
        minor=minor,
        total_memory=memory,
        multi_processor_count=number,
        L2_cache_size=cache,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=166912,
        shared_memory_per_multiprocessor=167936,
        uuid="00000000-0000-0000-0000-000000000000",
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
        is_integrated=False,
        is_multi_gpu_board=False,
    )
