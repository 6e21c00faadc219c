"""Typical steps of several runs as stacked bars: forward, backward, exposed communication, rest.

model      the parts of each step, and the gain of each run over the first of its group
figure     the static figure; `view.show.stack` displays it
"""
