"""Faults to learn from: `full_disk`, and the clinic's `patient`s with the possible `CAUSES`.

disk       a full disk, emulated by a limit on the size of files
patients   the text of the clinic's programs, and the list of possible causes
clinic     runs the programs, with the fault or mended
"""

from ddpkit.faults.clinic import RUNS_WITH, Patient, patient
from ddpkit.faults.disk import full_disk
from ddpkit.faults.patients import CAUSES

__all__ = ["CAUSES", "RUNS_WITH", "Patient", "full_disk", "patient"]
