"""Lab 10: a slow rank, a dead rank, a full disk, and a clinic.

cases      the exercises: what is asked, and what is right
hints      what to say of which mistake, a table for each exercise but the last ones
traces     traces of steps, made from how long each rank works
unequal    training with shares of different sizes, and what one process makes of them
disk_hints the hints of checkpoints
disk       checkpoints on disks that are whole, full, or pulled out
attempts   runs that fail as they are told to
drift      replicas of which some bits differ, and its hints
clinic     diagnoses and mends of the clinic's patients
"""
