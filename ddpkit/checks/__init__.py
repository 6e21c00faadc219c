"""The exercises of each lab: cases and hints. The engine that asks them is ddpkit.exercises.

labNN/      the exercises of lab NN, in `cases`; no lab imports another
shared/     parts of the checks of several labs
"""
