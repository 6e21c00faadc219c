"""A timeline to point at, to move and to zoom.

model      every span as columns of numbers
canvas     the widget that gives them to canvas.js
widget     `explore`
"""
