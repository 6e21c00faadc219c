"""Loss, throughput and late ranks while a run trains.

model      what the ranks have reported by now
figure     the static figure
widget     `live`, and what it gives the ranks to report with
"""
