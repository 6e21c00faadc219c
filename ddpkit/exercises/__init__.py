"""Exercises, their checks, and what students take from lab to lab.

exercise         what a lab's module registers: cases, points
  hint           named hints, and what they look at
  guard          what every answer is held to, and the hints that come first
  raised         what an answer ended in, as data
check            asks an answer and tells the student
  judge          the asking: every case, whatever the answer does
  seeds          where the inputs come from
  values         what was observed, as plain data, and as text
  compare        the first difference from what was expected
  counts         what was sent, in words
  explain        an exception, and the student's own line
  limit          the time that a case may take, and Stop
  tail           the last lines that an answer prints
  ranks          an answer on real ranks: what it returned, and what it sent to whom
  verdict, say   the telling
carry            an earlier lab's answer
  keep, sources  an answer made into a file that runs on its own
  progress       what went green so far
  course         the map of the course: the labs, and what is solved in each
guess            a prediction beside what came out
"""

from ddpkit.cluster.torchrun import job
from ddpkit.exercises.carry import carry
from ddpkit.exercises.check import check
from ddpkit.exercises.course import course
from ddpkit.exercises.exercise import Case, Exercise, exercise, exercises, find
from ddpkit.exercises.guess import beside
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.judge import judge
from ddpkit.exercises.values import Close, digest, show_value
from ddpkit.exercises.verdict import CaseResult, Verdict

__all__ = [
    "Case",
    "CaseResult",
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

if job.active():  # a lesson, as a script: it prints once what its notebook shows
    job.only_rank_0_prints()
