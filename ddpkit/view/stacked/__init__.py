"""Typical steps of several runs as stacked bars of forward, backward, exposed communication, ….

model      the parts of each step, and the gain of each run over the first of its group
figure     the static figure; `view.show.stack` displays it
"""
