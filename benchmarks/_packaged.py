"""Training programs with installed packages, for `benchmarks.scripts`.

In most programs, the package makes the process group.
"""

LIGHTNING = """
import lightning, torch
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(64, 8)
    def training_step(self, batch, number):
        loss = self.net(batch[0]).square().mean()
        self.log("loss", loss, sync_dist=True)
        return loss
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters())
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 64)), 8)
trainer = lightning.Trainer(accelerator="gpu", devices=2, {how}, max_epochs=1, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Model(), data)"""
# Programs by name, each with the packages that must be installed.
PACKAGED = {
    "accelerate, DDP": ("accelerate", """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
accelerator = Accelerator(gradient_accumulation_steps=2, mixed_precision="bf16")
model = torch.nn.Linear(64, 8)
data = DataLoader(TensorDataset(torch.randn(64, 64), torch.randn(64, 8)), 8, shuffle=True)
model, optimizer, data = accelerator.prepare(model, torch.optim.AdamW(model.parameters()), data)
for x, y in data:
    with accelerator.accumulate(model):
        loss = torch.nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step(); optimizer.zero_grad()
accelerator.gather(loss.detach()); accelerator.wait_for_everyone(); accelerator.end_training()"""),
    "accelerate, its own test of operations": (
        "accelerate", "from accelerate.test_utils.scripts.test_ops import main; main()"),
    "lightning, DDP": ("lightning", LIGHTNING.format(how='strategy="ddp"')),
    "lightning, FSDP": ("lightning", LIGHTNING.format(how='strategy="fsdp", precision="bf16-mixed"')),
    "transformers, Trainer": ("transformers accelerate", """
import tempfile, torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
tokens = torch.randint(64, (32, 16))
data = [{"input_ids": each, "labels": each} for each in tokens]
told = TrainingArguments(tempfile.mkdtemp(), max_steps=4, per_device_train_batch_size=4,
    logging_steps=2, save_strategy="no", report_to=[])
Trainer(model=GPT2LMHeadModel(config), args=told, train_dataset=data).train()"""),
    "deepspeed, ZeRO 2": ("deepspeed", """
import deepspeed, torch
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3)))
told = {"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 100_000}}
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=told)
for _ in range(3):
    batch = torch.randn(4, 64, device=engine.device, dtype=torch.bfloat16)
    engine.backward(engine(batch).float().square().mean()); engine.step()"""),
    "torchtitan, its own train.py": ("torchtitan triton", """
import json, os, runpy, sys, tempfile
from tokenizers import Tokenizer, models
folder = tempfile.mkdtemp()
maker = Tokenizer(models.BPE({**{chr(33 + k): k for k in range(94)}, "<s>": 94, "</s>": 95}, []))
maker.add_special_tokens(["<s>", "</s>"])
maker.save(f"{folder}/tokenizer.json")
json.dump({"bos_token": "<s>", "eos_token": "</s>"}, open(f"{folder}/tokenizer_config.json", "w"))
os.mkdir(f"{folder}/data")
with open(f"{folder}/data/text.json", "w") as file:
    for k in range(64): print(json.dumps({"text": f"{k}abcdefgh" * 40}), file=file)
told = {"model.name": "llama3", "model.flavor": "debugmodel", "model.hf_assets_path": folder, "training.steps": "3",
    "training.dataset": "c4_test", "training.dataset_path": f"{folder}/data", "training.seq_len": "32",
    "training.local_batch_size": "2", "activation_checkpoint.mode": "selective"}
sys.argv[1:] = [word for name, value in told.items() for word in (f"--{name}", value)]
runpy.run_module("torchtitan.train", run_name="__main__")"""),
    "torchft, a quorum": ("torchft", """
import torch, torch.distributed as dist
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
from torchft.coordination import LighthouseServer
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
server = LighthouseServer(bind="[::]:0", min_replicas=size) if rank == 0 else None
where = [server and server.address()]
dist.broadcast_object_list(where, 0)
store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
model = torch.nn.Linear(64, 8)
manager = Manager(ProcessGroupGloo(), model.load_state_dict, model.state_dict, min_replica_size=size, rank=0,
    world_size=1, replica_id=f"r{rank}", lighthouse_addr=where[0], store_addr="localhost", store_port=store.port)
wrapped = DistributedDataParallel(manager, model)
optimizer = Optimizer(manager, torch.optim.AdamW(model.parameters()))
while manager.current_step() < 3:
    optimizer.zero_grad(); wrapped(torch.randn(4, 64)).square().mean().backward(); optimizer.step()
manager.shutdown()"""),
}  # fmt: skip
