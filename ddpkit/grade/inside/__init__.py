"""The code that runs in the sandbox, beside hostile code. The grader outside trusts none of it.

plugin     lets nbval run the notebook, and reports cell by cell
kernel     the notebook's kernel: imports torch once, for the kernel and all ranks
asking     puts a question to the student's answer
claims     plain values as JSON, for the way out
"""

MIME = "application/vnd.ddpkit.claim+json"  # MIME type of a cell's output that is a claim
