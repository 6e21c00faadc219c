"""Training by replicas, stages and slices (data, pipeline and tensor parallel), on real ranks.

blocks    MeshBlock: a slice of a block, with a flat tensor of parameters and one of gradients
training  MeshTraining, train_on_mesh: a rank's steps, by any `ddpkit.simulate.MeshPlan`
"""

from ddpkit.mesh.training import MeshTraining, train_on_mesh

__all__ = ["MeshTraining", "train_on_mesh"]
