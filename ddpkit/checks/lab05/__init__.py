"""Lab 05: caps cases flat views."""
