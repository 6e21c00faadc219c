"""What runs in the sandbox, beside hostile code. Nothing here is trusted outside.

plugin     nbval runs the notebook, and reports cell by cell
kernel     the notebook's kernel: torch is imported once, for it and for all ranks
asking     puts a question to the answer
claims     plain values as JSON, for the way out
"""

MIME = "application/vnd.ddpkit.claim+json"  # of a cell's output that is a claim
