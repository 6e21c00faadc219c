"""What a reader types: `ddpkit …`, a file a command. The command line finds them by their names.

main       the command line itself
lab        opens a lab, or copies the labs to a folder
script     a lab as a plain script
run        a script for torchrun, on our ranks
check      one's own notebook, run from the top
doctor     is this machine ready?
diagnosis  what doctor says of what it saw
machine    modelled machines: those with a name, and one measured here
trace      the table of a trace, and its export
predict    a recorded step on other ranks and links
tune       the bucket caps that are worth measuring
grade      a class, each notebook in a sandbox
report     its results in another form
handout    the archive that a class gets
release    labs, solutions and answers from their sources
"""
