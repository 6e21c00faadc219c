"""Lab 02: cases hints question."""
