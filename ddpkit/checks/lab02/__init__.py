"""Lab 02: collectives from messages, and what a message costs.

cases        the exercises and their cases
line         fit_link: the line that is right, and hints for lines that are not
collectives  what goes into a collective, and what a right one leaves in the tensors and sends
anybody      a barrier in which ranks receive from anybody
mistakes     what can be wrong with a collective
hints        hints for wrong collectives and barriers
"""
