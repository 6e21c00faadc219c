"""Loss, throughput and late ranks while a run trains.

model      the reports of the ranks until now
figure     the static figure
widget     `live`, and the object by which a rank reports
"""
