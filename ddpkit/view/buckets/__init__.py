"""One step under a bucket cap, beside the step time under all caps.

model      the step, and its time under every other cap
figure     the static figure
widget     `explore_buckets`
"""
