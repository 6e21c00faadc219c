"""The exercises of each lab: cases and hints. The engine that runs the cases is ddpkit.exercises.

labNN/      the exercises of lab NN, in `cases`; no lab imports a different lab
shared/     parts of the checks of several labs
"""
