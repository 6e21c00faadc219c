"""A script for torchrun, run unchanged on a rank of ddpkit.

launched   the script as the function that a rank calls
joining    init_process_group in a script joins the run
processes  processes that a script starts for its ranks: the ranks take their places
gpus       stand-in GPUs of a rank that has no GPU, and the tensors there
cuda       cuda means the CPU: tensors and modules on a machine without a GPU
typed_tensors  torch.cuda.FloatTensor and its like
two_memories  an emulated device beside its host: the place of a tensor, and copies
properties  compute capability, processors and cache of a GPU
stand_ins  torch.cuda, as a script sees it on a machine without a GPU
gpu_calls  rarer calls of GPUs: stand-ins, and refusals in a sentence
homes      puts stand-ins under all names of a call, and refuses all other calls of GPUs
sync_batch_norm  nn.SyncBatchNorm on a CPU
"""
