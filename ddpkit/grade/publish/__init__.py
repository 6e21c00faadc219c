"""Files for teachers of large classes, made from results.

roster       the people in the course, and their submissions
overrides    a teacher's own points and comments, which every regrade keeps
anonymous    codes in place of names, and a file with the name that belongs to each code
gradebook    a table of points: a row for each person, a column for each lab
lms          the gradebook in the formats that Canvas and Moodle import
statistics   how often each case fails, and with which hint
standings    the class's table of lab 15, ranked by the time of the training
people       pages for each student, written answers by question, answers as files
"""
