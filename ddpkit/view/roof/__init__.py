"""Operations under the roofs of a machine.

model      FLOPs a byte, reached FLOP/s and the limit of each operation
figure     the static figure; `view.show.show_roof` displays it
"""
