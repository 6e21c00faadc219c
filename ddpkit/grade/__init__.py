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
levels       which sandbox there can be on this machine
bwrap        the sandbox proper
other_user   a lesser one, for root where the kernel refuses the other
own_account  none, for one's own notebook
sandbox      what all have in common: limits, the course inside, the command line
filter       system calls that a sandbox's processes may not make
users        ids of users that nobody is
process      what the kernel tells of a process, whose name and threads a stranger chooses
cgroup       a control group around a sandbox: the kernel's own limits, where one can be made
meter        what the processes of a sandbox use, counted from outside
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
