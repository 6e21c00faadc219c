"""What a teacher of many makes of results: rows for people, files for other programs.

roster       who takes the course, and which submissions are theirs
overrides    a teacher's own points and comments, which no regrade loses
anonymous    codes in place of names, and the file that tells whose they are
gradebook    one row a person, all labs
lms          the same as Canvas and Moodle import it
statistics   which case fails how often, and with which hint
standings    the class's table of lab 15: who trains how fast
people       pages for each student, written answers by question, answers as files
"""
