"""What both ends of a run share: the launcher's and the rank's.

ship         functions to the ranks, results back
blackbox     a rank's calls and status, in a file that outlives it
noticeboard  times that ranks leave for each other
"""
