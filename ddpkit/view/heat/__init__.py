"""How long each step of each rank took, and how long it waited: model, figure."""
