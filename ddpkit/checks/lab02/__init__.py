"""Lab 02: collectives built from messages, and the cost of a message.

cases        the exercises and their cases
line         the right line for fit_link, and hints about wrong lines
collectives  the inputs of a collective, and the tensors and messages of a right answer
anybody      a test for barriers in which ranks receive from any rank
mistakes     functions that recognize mistakes in collectives
hints        hints for wrong collectives and barriers
"""
