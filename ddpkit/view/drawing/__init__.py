"""What all pictures are made with.

page, plot   a figure in inches, and a scale on it
chart        rows of bars over an axis of time
style        colours and sizes
words        numbers and sentences
shell        a picture in a cell, with controls if any
"""
