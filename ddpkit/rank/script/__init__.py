"""Runs a script that was written for torchrun, unchanged, on a rank of ddpkit.

launched   the script as the function that a rank calls
joining    makes a script's init_process_group join the run
processes  makes the ranks take the places of processes that a script starts
spawned    makes processes that a script spawns see the GPUs of the rank
gpus       stand-in GPUs of a rank that has no GPU, and the tensors on them
cuda       makes "cuda" mean the CPU, for tensors and modules on a machine without a GPU
typed_tensors  torch.cuda.FloatTensor and its like
two_memories  shows a script the place of each tensor: the emulated device or its host
properties  compute capability, multiprocessors and cache of a stand-in GPU
stand_ins  torch.cuda, as a script sees it on a machine without a GPU
gpu_calls  rarer calls of GPUs: stand-ins, and refusals in a sentence
homes      puts stand-ins under all names of a call, and refuses all other calls of GPUs
sync_batch_norm  nn.SyncBatchNorm on a CPU
"""
