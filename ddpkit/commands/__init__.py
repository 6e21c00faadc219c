"""What a reader types: `ddpkit …`, a file a command.

main       the command line
grade      ddpkit grade, ddpkit report
trace      ddpkit trace
script     ddpkit script
copy       ddpkit lab --copy
doctor     ddpkit doctor
diagnosis  what a machine may lack, for doctor
selfcheck  ddpkit doctor's run of a notebook
"""
