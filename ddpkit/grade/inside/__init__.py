"""Code of the grader that runs in the sandbox, beside a student's code.

The grader outside trusts nothing that this code returns.

plugin     lets nbval run the notebook, and reports each cell
kernel     the notebook's kernel: imports torch once, for the kernel and all ranks
asking     puts a question to the student's answer
claims     encodes values as JSON, to leave the sandbox
"""

MIME = "application/vnd.ddpkit.claim+json"  # MIME type of a cell's output that is a claim
