"""Loss, throughput and slow ranks while a run trains.

model      the reports of the ranks until now
figure     the static figure
widget     `live`, and the object with which a rank reports
"""
