"""One model trained by replicas, stages and slices together, on real ranks.

blocks    MeshBlock: a slice of one block, its parameters and gradients in one piece each
training  MeshTraining, train_on_mesh: the steps of one rank, by any `ddpkit.simulate.MeshPlan`
"""

from ddpkit.mesh.training import MeshTraining, train_on_mesh

__all__ = ["MeshTraining", "train_on_mesh"]
