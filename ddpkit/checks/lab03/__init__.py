"""Lab 03: cases hints question."""
