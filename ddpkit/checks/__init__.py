"""What each lab asks: cases and hints. The engine that asks them is ddpkit.exercises.

labNN/      the exercises of lab NN, in `cases`; found by its number
messages    what to say of messages that did not come through
"""
