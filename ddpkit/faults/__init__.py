"""Faults to learn from: `full_disk`, and the clinic's `patient`s with their `CAUSES`.

disk       disks that fail
patients   the clinic's programs, as text, and the causes that they may have
clinic     runs them, as they are and mended
"""

from ddpkit.faults.clinic import RUNS_WITH, Patient, patient
from ddpkit.faults.disk import full_disk
from ddpkit.faults.patients import CAUSES

__all__ = ["CAUSES", "RUNS_WITH", "Patient", "full_disk", "patient"]
