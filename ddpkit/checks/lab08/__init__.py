"""Lab 08: push, pull and serve, three rules of a parameter server, and remote function calls.

cases      the exercises: their inputs and the right results
hints      sentences about mistakes in messages, a table for each exercise
rules      stories (sequences of pulls and pushes) for a rule, without ranks
of_rules   the cases of Synchronous and Asynchronous, and the hints about them
leads      the cases of Bounded, and the hints about them
servers    the servers that talk to `push` and `pull`
stories    stories in which workers send requests to `serve`, in a fixed order
remote     functions on ranks for checks of remote calls
of_remote  the cases of remote calls, and the hints about them
rounds     seconds_per_round: the right formula, and wrong formulas
"""
