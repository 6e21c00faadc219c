"""The ranks of a mesh, and the groups in which ranks exchange data.

model      ranks on a grid, lines along each dimension, hosts
figure     the static figure; `view.show.show_mesh` displays it
"""
