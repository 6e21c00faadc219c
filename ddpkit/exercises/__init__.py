"""Exercises, their checks, and the students' answers, which are saved for later labs.

exercise         the cases and points of an exercise, registered by a lab's module
  hint           hints for wrong answers, and the data that hints can use
  guard          rules for all answers, and the hints of these rules
  raised         an exception as data
check            runs the cases of an exercise with an answer, and prints the result
  judge          runs every case with the answer, even after an error in the answer
  assess         judges one case, in the notebook and in the grader
  seeds          the seed from which the inputs are drawn
  values         copies values into plain data, and shows them as text
  compare        the first difference between observed and expected
  counts         texts for counts of bytes and messages
  explain        explains an exception, and finds the student's line that raised it
  limit          limits the time of a case, and makes the notebook's Stop button work
  tail           keeps the last lines that an answer prints
  ranks          runs an answer on real ranks, and observes its results and messages
  verdict, say   the report to the student
carry            returns the answer of an earlier lab
  keep, sources  save an answer as a file that runs by itself
  progress       stores which exercises have passed
  course         the map of the course: the labs, and the solved exercises of each
guess            prints a prediction beside the measured number
"""

from ddpkit.cluster.torchrun import job
from ddpkit.exercises.assess import Assessment
from ddpkit.exercises.carry import carry
from ddpkit.exercises.check import check
from ddpkit.exercises.course import course
from ddpkit.exercises.exercise import Case, Exercise, exercise, exercises, find
from ddpkit.exercises.guess import beside
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.judge import judge
from ddpkit.exercises.values import Close, digest, show_value
from ddpkit.exercises.verdict import Verdict

__all__ = [
    "Assessment",
    "Case",
    "Close",
    "Exercise",
    "Hint",
    "Seen",
    "Verdict",
    "beside",
    "carry",
    "check",
    "course",
    "digest",
    "exercise",
    "exercises",
    "find",
    "judge",
    "show_value",
]

if job.active():  # in a lesson under torchrun, print once, as the notebook does
    job.only_rank_0_prints()
