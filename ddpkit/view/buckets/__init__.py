"""One step under a bucket cap, beside the step time under all caps: model, figure, widget."""
