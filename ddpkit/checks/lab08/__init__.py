"""Lab 08: push, pull and serve, three rules for who may go on, and calls of functions over there.

cases      the exercises: what is asked, and what is right
hints      what to say of which mistake in what is sent, a table for each exercise
rules      stories of pulls and pushes that are played to a rule, without ranks
of_rules   the cases of Synchronous and Asynchronous, and what to say of which mistake
leads      the same of Bounded
servers    the servers that `push` and `pull` talk to
stories    stories that workers play to `serve`, in an order that is certain
remote     what runs on the ranks where functions are called over there
of_remote  the cases of these calls, and what to say of which mistake
rounds     seconds_per_round: the formula, and those that are wrong
"""
