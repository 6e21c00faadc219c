"""A step with one bucket cap, beside the step times with all caps.

model      the step, and the step times with all other caps
figure     the static figure
widget     `explore_buckets`
"""
