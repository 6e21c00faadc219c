"""Lab 04: cases gradients hints shard start train."""
