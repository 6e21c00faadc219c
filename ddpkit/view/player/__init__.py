"""A collective step by step.

model      the steps: who holds what after each, and has sent how much
scheduled  the steps of a schedule
recorded   the steps of real ranks' messages
boxes      where the ranks stand
arrows     straight arrows between them
figure     one step as a static figure
widget     `play`
"""
