"""Grades notebooks of strangers: nbval runs them in a sandbox, ddpkit compares values outside.

found        the handed-in notebooks of the given folders, with readable names
apart        work on a stranger's data in a process of its own, under limits
reading      a submission read in a process of its own
judging      claims judged in a process of their own
classroom    all submissions, several at a time
division     a class graded on several machines, in parts
turns        sandboxes side by side, or one sandbox alone
workplace    the grader's temporary folder, removed later if the grader is killed
course       a lab's cells, and its questions drawn from the secret seed
freshness    the files and versions on which a score depends, found from the imports
submission   a notebook, read as hostile data
merge        the notebook as the grader runs it: its cells, and the places of the questions
cellnames    names that a cell's code binds, changes, calls and needs
questions    the cases of an exercise, without the expected values
attempt      one submission, in as many runs as it takes
engine       one run, watched from outside
sandbox/     the sandboxes: the kinds that a machine allows, their limits, the measured use
inside/      the code that runs in the sandbox beside hostile code, and nowhere else
decode       values out of a claim
quote        bounds on a result's text, which quotes output of a student's code
score        claims against expectations: points and feedback
practice     a student's own notebook, graded at home as the grader would grade it
evidence     the parts of a result for people: written answers, the answers' code
look         places that a teacher may want to read; they never change points
store        results on disk, a file for each submission
report       the results for other programs
page         the results for people: one HTML page
publish/     files for a teacher of many students: gradebook, Canvas, Moodle, pages
"""
