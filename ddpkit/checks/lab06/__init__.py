"""Lab 06: averages that overlap with backward, and the DistributedDataParallel made of them.

cases     the exercises: what is asked, and what is right
hints     what to say of which mistake, a table for each exercise
reducer   backwards played by hand to a Reducer, with averages that only take notes
graphs    wrapped   the cases of DistributedDataParallel
on_ranks  what runs on each rank: answers put through their paces, beside torch's
traces    what traces tell of all-reduces
"""
