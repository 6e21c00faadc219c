"""Benchmarks: `python -m benchmarks.NAME` runs a module with a name without an underscore.

cluster    start, memory, large tensors, recording: see BENCHMARKS.md
emulation  emulated ÷ exact: operations, pipelines, a server; measured compute beside the wall clock
machines   modelled machines: the cost of counting, equal traces, counted ÷ measured
all_reduce  bus bandwidth of lab 03's six all-reduces and of gloo's, on raw gloo and on a link
compiler   the first run that trains: torch's compiler imported once, or by each rank
turns      small messages between ranks scheduled as batch jobs, and as usual processes
published  predicted ÷ published training steps of MPT on A100 and H100, compute alone
real_sizes  models of 1.3 and 8 billion parameters on ranks without values
gpus       a run, its memory and recording on GPUs; counted ÷ measured steps
ddp        lab 06's DDP: its step ÷ torch's, hidden communication of both, the best bucket
views      the cost of pictures and redraws, up to 100,000 spans
whatif     predicted ÷ measured steps: a replay of one run predicts other runs
scaling    measured ÷ predicted steps on 2 to 16 ranks, from one recording; the cost of 4,096
traces     CPU seconds and memory of commands on large traces, and their growth
scripts    training programs under `ddpkit run`: exit, hidden share, memory, or the refusal
servers    measured ÷ simulated parameter servers, 1 to 16 workers and 1 to 4 servers
grading    seconds for a submission, and for a class of 60 submissions, a third of them hostile
capstone   lab 15: points and costs of twelve strategies, and the savings of mended faults
torch_tests  torch's own test bodies that pass on the kit's group, in real and in emulated time
accusations  the watches over a run: their cost, and the mistakes that they name
mutate     machine-made mistakes in the answers, and those that no check refuses
statements  the cost of an exercise for its author: statements of checks and answers
seeds      wrong answers of a lab that pass under some seed of the grader's questions
soak       hundreds of faults in a row; after each fault everything works and nothing is left

Seconds on one machine say little about another machine, and less about a busy machine. So the
benchmarks measure the compared things side by side, in turns, and print each figure with its
spread.
"""
