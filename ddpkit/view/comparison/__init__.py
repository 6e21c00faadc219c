"""Several runs on one axis of time: model, figure; `what_if`, a recorded run beside its replay."""
