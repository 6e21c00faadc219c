"""Who did what, when, and where each rank's time went.

model      a trace as bars and numbers
lanes      which lane a bar goes in, and how many a screen can show
waits      who waited for whom
places     where everything lies, in inches
figure     the static figure
parts      beside it, each rank's time in four parts
"""
