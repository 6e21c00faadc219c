"""A script that runs under torchrun, run as it is on a rank of ours.

launched   the script as the function that a rank calls
joining    init_process_group in a script joins the run
cuda       where there is no GPU, cuda means the CPU: what becomes of tensors and modules
stand_ins  torch.cuda, as a script sees it there
"""
