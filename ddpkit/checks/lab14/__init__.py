"""Lab 14: replicas, stages and slices together.

cases     the exercises: what is asked, and what is right
groups    wrong ideas of who is in a group with whom
seconds   what a step costs: questions that ask for one term at a time, and wrong ideas of each
storage   what a plan holds, and wrong ideas of it
planners  the cheapest plan, and planners that miss it
"""
