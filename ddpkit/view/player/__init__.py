"""A collective step by step.

model      the steps: each rank's data after a step, and the bytes sent until then
scheduled  the steps of a schedule
recorded   the steps of real ranks' messages
boxes      the places of the ranks
arrows     straight arrows between ranks
figure     one step as a static figure
widget     `play`
"""
