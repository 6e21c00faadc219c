"""Lab 10: a slow rank, a dead rank, a full disk, and a clinic of faulty programs.

cases      the exercises: their inputs and the right results
hints      sentences about mistakes, a table for most exercises
traces     traces of steps, made from the work times of each rank
unequal    training with shares of different sizes, and the training of one process
disk_hints the hints about checkpoints
disk       checkpoints on disks that work, are full, or are lost
attempts   runs that fail as planned
drift      replicas with different bits, and the hints about them
clinic     diagnoses and repairs of the clinic's patients, which are faulty programs
"""
