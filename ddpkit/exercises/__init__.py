"""Exercises, their checks, and the work that students take from lab to lab.

exercise         cases and points, registered by a lab's module
  hint           named hints, and the values that hints look at
  guard          demands on every answer, and the hints that come first
  raised         an exception as data
check            puts questions to an answer, and tells the student the result
  judge          puts every case to the answer, in spite of any error in the answer
  assess         the judgement of a case, in the notebook and in the grader
  seeds          the source of the inputs
  values         observed values, as plain data, and as text
  compare        the first difference between observed and expected
  counts         counts of bytes and messages, in words
  explain        an exception, and the student's own line
  limit          the time that a case may take, and Stop
  tail           the last lines that an answer prints
  ranks          an answer on real ranks: results, and messages with sender and receiver
  verdict, say   the report to the student
carry            an earlier lab's answer
  keep, sources  an answer saved as a file that runs by itself
  progress       the passed exercises
  course         the map of the course: the labs, and the solved exercises of each
guess            a prediction beside the measured number
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
