"""Lab 00: cases of a token and of a shift around a ring of ranks."""
