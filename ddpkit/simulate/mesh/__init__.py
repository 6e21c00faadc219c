"""A model on a mesh of replicas, stages and slices.

plans      MeshPlan, MeshModel, MeshMachine, mesh_groups
plan_time  plan_time: the Trace of a training step under a plan
"""
