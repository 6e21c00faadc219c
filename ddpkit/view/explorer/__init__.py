"""A timeline to point at, to move and to zoom.

model      every span as columns of numbers
look       the code of the explorer, its words and its colours
page       a trace as one HTML page, which opens offline
beside     two runs on one page, which zoom and move together
document   the parts of such pages
canvas     the widget that gives the columns to canvas.js
widget     `explore`
"""
