"""Worker processes of a DataLoader, by fork and by spawn, in a script that sets a start method."""

import multiprocessing
import os

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Squares(Dataset):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, k: int) -> torch.Tensor:
        return torch.tensor([float(k * k)])


def main() -> None:
    multiprocessing.set_start_method("spawn")
    dist.init_process_group()
    for how in ("fork", "spawn"):
        loader = DataLoader(
            Squares(),
            batch_size=2,
            num_workers=1,
            multiprocessing_context=how,
            sampler=DistributedSampler(Squares(), shuffle=False),
        )
        total = sum(batch.sum() for batch in loader)
        dist.all_reduce(total)
        assert total.item() == sum(k * k for k in range(16))
    if os.environ["RANK"] == "0":
        print("all squares", flush=True)


if __name__ == "__main__":
    main()
