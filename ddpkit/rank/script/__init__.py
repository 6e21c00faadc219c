"""A script for torchrun, run unchanged on a rank of ddpkit.

launched   the script as the function that a rank calls
joining    init_process_group in a script joins the run
gpus       the GPUs of a rank without GPUs, and the tensors there
cuda       cuda means the CPU: tensors and modules on a machine without a GPU
two_memories  an emulated device beside its host: the place of a tensor, and copies
properties  compute capability, processors and cache of a GPU
stand_ins  torch.cuda, as a script sees it on such a machine
gpu_calls  rarer calls of GPUs: stand-ins, and refusals in a sentence
homes      all names of a stood-in call, and refusals of all other calls of GPUs
sync_batch_norm  nn.SyncBatchNorm on a CPU
"""
