"""Typical steps of several runs as stacked bars: forward, backward, exposed communication, rest.

model      the parts of each step, and what each run gains against the first of its group
figure     the static figure; `view.show.stack` displays it
"""
