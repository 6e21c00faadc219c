"""Hints of lab 10's checkpoints: the tables of save_checkpoint and load_checkpoint."""

from __future__ import annotations

from ddpkit.exercises.hint import Hint

# fmt: off
HOLDS = "step 3, the model after 3 steps and its momentum"
SAVE = (
    Hint("left alone", lambda s: s.stuck or s.mismatch,
         "Rank 0 alone writes, but all ranks come to the barrier."),
    Hint("all write", lambda s: s.case == "disks" and s.there[1] and s.expect["there"] == [1, 0],
         "Rank 1 has written a file too. On one disk all would write the same file at once, over "
         "each other: rank 0 alone writes."),
    Hint("not yet there", lambda s: s.wrong("there"),
         "A rank was back before the file was there: all wait for rank 0."),
    Hint("no checkpoint", lambda s: "no dict" in s.holds[0],
         'The file is what torch.save makes of a dict with "step", "model" and "optimizer".'),
    Hint("no momentum", lambda s: "no momentum" in s.holds[0] or "no momentum" in s.holds,
         "The model is right, but the step after it is not: the optimizer's state, its momentum, "
         "is not in the file."),
    Hint("another folder", lambda s: s.wrong("moved"),
         "os.replace puts a file in its place at once within one file system only: write the new "
         "one beside `path`, in its folder."),
    Hint("left behind", lambda s: s.wrong("besides"),
         lambda s: f"A second file was left beside the checkpoint: {', '.join(s.besides)}."),
    Hint("another step", lambda s: s.case == "disks" and s.holds[0] != HOLDS,
         lambda s: f"After 3 steps the file holds {s.holds[0]}: {HOLDS} was to be saved."),
    Hint("in place", lambda s: s.holds == "a broken file",
         "It ended half-way, and the old checkpoint is gone with the new: write beside it, and "
         "os.replace() only what is whole."),
    Hint("removed first", lambda s: s.holds == "no file",
         "Between two lines of yours there was no checkpoint, and there it ended: os.replace() "
         "takes the old one's place in one go."),
    Hint("copied", lambda s: s.case == "killed at the end" and s.ended == "returned",
         "The old file was written over while the new one was copied, and a copy may end half-way: "
         "os.replace() takes its place in one go."),
    Hint("swallowed", lambda s: s.case == "full" and s.ended == "returned",
         "The disk was full, nothing was saved, and nobody heard of it: let the error through."),
    Hint("stumbles", lambda s: s.wrong("the next"),
         "After a save that failed, the next one fails too: it stumbles over what was left."),
)

LOAD = (
    Hint("off by one", lambda s: any(text.startswith(f"step {s.steps + 1},") for text in s.ranks),
         "One step was left out: the file's step is the one to go on with."),
    Hint("only rank 0", lambda s: s.ranks[0] == s.expect["ranks"][0] != s.ranks[1],
         lambda s: f"Rank 0 has it: {s.ranks[0]}. Rank 1 sees no file, and has {s.ranks[1]}. It "
         "needs to be sent what rank 0 has read."),
    Hint("no file", lambda s: s.steps is None and (s.error or s.wrong()),
         "Without a file training begins: return 0, on all ranks, and leave all as it is."),
    Hint("left alone", lambda s: s.stuck or s.mismatch,
         "Rank 0 sees a file and the others do not, so they took different ways: what rank 0 "
         "knows it has to tell all."),
    Hint("every rank reads", lambda s: s.raised == "FileNotFoundError",
         "Only rank 0 sees the file, as on several hosts without a common disk: it reads, and "
         "sends what it has read."),
    Hint("no momentum", lambda s: any("no momentum" in text for text in s.ranks),
         "The model is right, but the step after it is not: the optimizer has no momentum."),
    Hint("begins anew", lambda s: s.wrong("ended"),
         "Half of the file is missing, and training would begin at step 0 without a word, and "
         "soon save over what is left: let the error through."),
    Hint("file changed", lambda s: s.wrong("file"), "The damaged file is gone: somebody may still "
         "have saved some of it."),
    Hint("not loaded", say="On every rank the model and the optimizer go on as rank 0's file says, "
         "and the step is the file's."),
)
