"""Grades notebooks of strangers: nbval runs them in a sandbox, values are compared outside.

submission   a notebook as hostile data
merge        its answers in the course's lab
questions    what is asked, without what is expected
inside/      what runs in the sandbox, beside hostile code
sandbox      where that happens: limits, and what is inside
bwrap        a sandbox proper
other_user   a lesser one, for root where the kernel refuses the other
levels       which of the two
engine       one run, watched from outside
attempt      one submission: as many runs as it takes
score        claims against expectations: points and feedback
course       a lab's questions under the secret seed
freshness    what a score depends on, found from the imports
classroom    all submissions, some at a time
store        one file a submission
report       the results for other programs
page         the results for people: one HTML page
"""
