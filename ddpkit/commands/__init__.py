"""The commands of `ddpkit …`: the command line finds each command by the name of its file.

main       the command line itself
lab        opens a lab, or copies the labs to a folder
script     a lab as a plain script
run        a script written for torchrun, on ddpkit's ranks
summary    the report of a run: time, speed, work and price
check      your own notebook, run from the top
doctor     an examination of this machine
diagnosis  the sentences of doctor
machine    modelled machines: the named ones, and one measured here
trace      the table of a trace, and its export
beside     the changes from one run to another, for `ddpkit trace --beside`
predict    a recorded step on other ranks and links
numbers    the numbers of a command as JSON and CSV
waiting    messages about the progress of a long command
tune       the bucket caps that are worth measuring
grade      a class, each notebook in a sandbox
report     the results of a class in another form
handout    the archive for a class
slides     decks of slides for a lecture
release    labs, solutions and answers from their sources
"""
