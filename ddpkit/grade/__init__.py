"""Grading of students' notebooks: nbval runs them in a sandbox, ddpkit judges values outside it.

found        the submitted notebooks in some folders, with readable names
apart        runs work on a student's data in a separate process, under limits
reading      reads a submission in a separate process
judging      judges claims in a separate process
classroom    grades all submissions, several at a time
division     the parts of a class that is graded on several machines
turns        makes sandboxes wait, so that one of them can run alone
workplace    the grader's temporary folder, which is removed even if the grader is killed
course       the cells of a lab, and its questions, with inputs drawn from the secret seed
freshness    the files and versions on which a score depends, found from the imports
submission   the content of a submitted notebook, which the grader does not trust
merge        decides which cells of a submission run, and where the questions come
cellnames    names that a cell's code binds, changes, calls and needs
questions    the cases of an exercise as questions, without the expected values
attempt      grades one submission, in as many runs as necessary
engine       runs a notebook once in a sandbox, and watches it from outside
sandbox/     the kinds of sandbox, their limits, and the measurement of their use of resources
inside/      the code that runs in the sandbox beside hostile code, and nowhere else
decode       rebuilds the values in a claim
quote        cuts the texts in a result, because they quote output of a student's code
score        compares claims with expected values, and gives points and feedback
practice     grades a student's own notebook at home, as the grader would
evidence     the parts of a submission that people read: written answers, the answers' code
look         places in a submission that a teacher may want to read, without effect on points
store        the results on disk, one file for each submission
report       writes the results for other programs
page         writes the results as one HTML page
publish/     files for the teacher of a large class: gradebook, Canvas, Moodle, pages
"""
