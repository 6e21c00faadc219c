"""Grades notebooks of strangers: nbval runs them in a sandbox, values are compared outside.

found        what was handed in: notebooks in folders, under readable names
apart        work on a stranger's data in a process of its own, under limits
reading      a submission read in such a process
judging      claims judged in such a process
classroom    all submissions, some at a time
division     a class graded on several machines, in parts
turns        sandboxes side by side, or one alone
workplace    the grader's temporary folder, swept if it is killed
course       a lab's cells and questions, under the secret seed
freshness    what a score depends on, found from the imports
submission   a notebook, read as hostile data
merge        the notebook as the grader runs it: which cells, and where the questions come
cellnames    what a cell's code binds, changes, calls and needs
questions    what is asked, without what is expected
attempt      one submission: as many runs as it takes
engine       one run, watched from outside
sandbox/     the sandboxes: which there can be, their limits, the use that is measured
inside/      what runs in the sandbox, beside hostile code; nothing else of this folder does
decode       values out of a claim
quote        the bounds of a result's text, which quotes what a student's code said
score        claims against expectations: points and feedback
practice     one's own notebook, graded as the grader would
evidence     what a result keeps for people: written answers, the answers' code
look         what a teacher may want to look at: never points
store        results on disk, one file a submission
report       the results for other programs
page         the results for people: one HTML page
publish/     what a teacher of many makes of results: gradebook, Canvas, Moodle, pages
"""
