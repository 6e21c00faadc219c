"""Hints about lab 10's checkpoints: the tables of save_checkpoint and load_checkpoint."""

from __future__ import annotations

from ddpkit.exercises.hint import Hint

# fmt: off
HOLDS = "step 3, the model after 3 steps and its momentum"
SAVE = (
    Hint("left alone", lambda s: s.stuck or s.mismatch,
         "Only rank 0 writes, but all ranks must reach the barrier."),
    Hint("all write", lambda s: s.case == "disks" and s.there[1] and s.expect["there"] == [1, 0],
         "Rank 1 has written a file too. On one disk, all ranks would overwrite the same file at "
         "once. Only rank 0 may write."),
    Hint("not yet there", lambda s: s.wrong("there"),
         "A rank returned before the file existed. All ranks must wait for rank 0."),
    Hint("no checkpoint", lambda s: "no dict" in s.holds[0],
         'The file must be written by torch.save, from a dict with "step", "model" and '
         '"optimizer".'),
    Hint("no momentum", lambda s: "no momentum" in s.holds[0] or "no momentum" in s.holds,
         "The model is right, but the step after it is not. The optimizer's state, its momentum, "
         "is missing in the file."),
    Hint("another folder", lambda s: s.wrong("moved"),
         "os.replace is atomic only within one file system. Write the new file next to `path`, in "
         "its folder."),
    Hint("left behind", lambda s: s.wrong("besides"),
         lambda s: f"A second file was left next to the checkpoint: {', '.join(s.besides)}."),
    Hint("another step", lambda s: s.case == "disks" and s.holds[0] != HOLDS,
         lambda s: f"After 3 steps, the file holds {s.holds[0]}. The right content is {HOLDS}."),
    Hint("in place", lambda s: s.holds == "a broken file",
         "The save ended half-way, and the old checkpoint is lost with the new file. Write the new "
         "file next to the old, and call os.replace() only with a whole file."),
    Hint("removed first", lambda s: s.holds == "no file",
         "Between two of your lines, there was no checkpoint, and the process ended there. "
         "os.replace() replaces the old file in one step."),
    Hint("copied", lambda s: s.case == "killed at the end" and s.ended == "returned",
         "Your code overwrote the old file while copying the new file, and a copy may end "
         "half-way. os.replace() replaces the old file in one step."),
    Hint("swallowed", lambda s: s.case == "full" and s.ended == "returned",
         "The disk was full, and nothing was saved, but no error reached the caller. Let the error "
         "through."),
    Hint("stumbles", lambda s: s.wrong("the next"),
         "After a failed save, the next save fails too, because of the files that were left."),
)

LOAD = (
    Hint("off by one", lambda s: any(text.startswith(f"step {s.steps + 1},") for text in s.ranks),
         "Your code skips one step. The file's step is the step to continue with."),
    Hint("only rank 0", lambda s: s.ranks[0] == s.expect["ranks"][0] != s.ranks[1],
         lambda s: f"Rank 0 has loaded: {s.ranks[0]}. Rank 1 sees no file, and has {s.ranks[1]}. "
         "Rank 0 must send the content of the file to rank 1."),
    Hint("no file", lambda s: s.steps is None and (s.error or s.wrong()),
         "Without a file, training begins. Return 0 on all ranks, and leave model and optimizer "
         "unchanged."),
    Hint("left alone", lambda s: s.stuck or s.mismatch,
         "Rank 0 sees a file and the remaining ranks do not, so the ranks took different branches. "
         "Rank 0 has to tell all ranks that there is a file."),
    Hint("every rank reads", lambda s: s.raised == "FileNotFoundError",
         "Only rank 0 sees the file, like hosts without a shared disk. Rank 0 reads the file, and "
         "sends the content."),
    Hint("no momentum", lambda s: any("no momentum" in text for text in s.ranks),
         "The model is right, but the step after it is not. The optimizer has no momentum."),
    Hint("begins anew", lambda s: s.wrong("ended"),
         "Half of the file is missing. Training would begin at step 0 without a message, and would "
         "soon overwrite the rest of the file. Let the error through."),
    Hint("file changed", lambda s: s.wrong("file"), "The damaged file is gone, but parts of it "
         "could still be saved."),
    Hint("not loaded", say="On every rank, the model and the optimizer must continue from rank 0's "
         "file, and the step must be the file's step."),
)
