"""The methods that c10d calls on a process group: implemented methods, and refused methods."""

from ddpkit import torch_private

# c10d's method -> the function of torch.distributed that users know
COLLECTIVES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce_coalesced",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather_coalesced",
    "all_gather_single": "all_gather_into_tensor",
    torch_private.ALL_GATHER: "all_gather_into_tensor",
    "reduce_scatter": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter_tensor",
    torch_private.REDUCE_SCATTER: "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "all_to_all_single": "all_to_all_single",
    "barrier": "barrier",
}
# Renamed in torch 2.13: the caller may use one name, and the inner group may have the other.
RENAMED = {
    "all_gather_single": torch_private.ALL_GATHER,
    "reduce_scatter_single": torch_private.REDUCE_SCATTER,
    "all_to_all_single": "alltoall_base",
}
RENAMED |= {old: new for new, old in RENAMED.items()}
# Each of these methods takes several pairs of tensors, and is recorded and done as one operation on
# each pair, because the Python classes of the backends offer only such operations. DTensor and
# FSDP2 call these methods. torch 2.13 renamed them.
PAIRWISE = {
    "allgather_into_tensor_coalesced": torch_private.ALL_GATHER,
    "all_gather_single_coalesced": torch_private.ALL_GATHER,
    "reduce_scatter_tensor_coalesced": torch_private.REDUCE_SCATTER,
    "reduce_scatter_single_coalesced": torch_private.REDUCE_SCATTER,
}
# Calls that would make traffic or groups unseen by any trace, each with the reason of its refusal.
NO_HOOKS = "the hooks would see no call. After the run, `run.trace` has each call"
NO_PEERS = "the ranks are fixed when the run starts"
REFUSED = {
    "split_group": "make the group with dist.new_group(ranks), which is recorded",
    "merge_remote_group": NO_PEERS,
    "reconfigure": NO_PEERS,
    "get_reconfigure_handle": NO_PEERS,
    "new_window": "one-sided transfers are not recorded",
    "register_pre_hook": NO_HOOKS,
    "register_post_hook": NO_HOOKS,
    "register_abort_hook": NO_HOOKS,
}
INPUT_COMES_SECOND = frozenset(COLLECTIVES) - {
    "allreduce",
    "allreduce_coalesced",
    "broadcast",
    "reduce",
    "barrier",
    "scatter",  # only the root has an input, so the record shows the output's shape
}
