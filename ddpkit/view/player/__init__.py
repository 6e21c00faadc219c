"""A collective step by step.

film       a collective as moments
scheduled  the film of a schedule
recorded   the film of real ranks' messages
stage      where the ranks stand
arrows     straight arrows between them
figure     a moment as a figure
widget     `play`
"""
