"""A small GPT, trained as in nanoGPT: mixed precision, two micro-batches a step, tied weights."""

import inspect
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

VOCABULARY, WIDTH, HEADS, LENGTH, ROWS = 33, 16, 2, 8, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.three, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        heads = (
            each.view(b, t, HEADS, c // HEADS).transpose(1, 2)
            for each in self.three(self.before(x)).split(WIDTH, dim=2)
        )
        y = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.down(F.gelu(self.up(self.between(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.block, self.norm = Block(), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.token.weight = self.head.weight

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.size(1), dtype=torch.long, device=tokens.device)
        x = self.norm(self.block(self.token(tokens) + self.place(places)))
        return F.cross_entropy(self.head(x).view(-1, VOCABULARY), targets.view(-1))


def batch(device: str) -> tuple[torch.Tensor, ...]:
    tokens = torch.randint(VOCABULARY, (ROWS, LENGTH + 1))
    pair = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    return tuple(each.pin_memory().to(device, non_blocking=True) for each in pair)


dist.init_process_group(backend="nccl")
device = f"cuda:{os.environ['LOCAL_RANK']}"
torch.cuda.set_device(device)
torch.manual_seed(1337 + dist.get_rank())
torch.backends.cuda.matmul.allow_tf32 = True
dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
model = DDP(GPT().to(device), device_ids=[int(os.environ["LOCAL_RANK"])])
fused = "fused" in inspect.signature(torch.optim.AdamW).parameters
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
for _ in range(3):
    for last in (False, True):
        model.require_backward_grad_sync = last
        with torch.amp.autocast(device_type="cuda", dtype=dtype):
            loss = model(*batch(device)) / 2
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
assert loss.item() > 0
dist.destroy_process_group()
