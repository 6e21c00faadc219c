"""Lab 02: collectives built from messages, and the cost of a message.

cases        the exercises and their cases
line         fit_link: the right line, and hints for wrong lines
collectives  the inputs of a collective, and the tensors and messages of a right answer
anybody      a barrier in which ranks receive from any rank
mistakes     mistakes in collectives
hints        hints for wrong collectives and barriers
"""
