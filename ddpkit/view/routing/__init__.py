"""The rows that each rank sends to each expert, and the rows that each rank receives.

model      numbers of rows by sender and expert, and the busiest rank in words
figure     the static figure; `view.show.show_routing` displays it
"""
