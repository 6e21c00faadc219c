"""Lab 00: cases."""
