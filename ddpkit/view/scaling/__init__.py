"""A step on 1 to 1024 ranks: model, figure, widget."""
