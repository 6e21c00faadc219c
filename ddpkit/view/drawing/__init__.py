"""Parts that several pictures share. No module here imports a picture.

page, plot   a figure in inches, and a scale on it
style        colours and sizes
words        numbers and sentences
lanes        the lane of each bar; bars too small to see are merged
rows         a trace as rows of bars, a row for each rank
layout       the places of the rows, in inches
chart        the rows, drawn over an axis of time
changes      the differences of two runs, by rank and by kind
breakdown    the parts of each rank's time, as a bar beside the row
runs         the run or trace that is the argument of a picture
steps        the step that a widget starts from, and the bucket caps to try
typical      the step that represents a run
sliders      the controls that several widgets have
panel        controls over a picture, in the browser
svg          a figure as SVG, with the colours of a light theme and of a dark one
display      a figure as an output of a cell
shell        `View`: a picture in a cell, with controls if any
"""
