"""Lab 01: cases hints."""
