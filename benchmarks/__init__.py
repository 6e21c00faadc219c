"""Benchmarks: each module without an underscore is run as `python -m benchmarks.NAME`.

cluster    start, memory, large tensors, recording: see BENCHMARKS.md
emulation  emulated ÷ exact: operations, pipelines, a server; measured compute beside the wall clock
machines   modelled machines: what counting costs, equal traces, counted ÷ measured
all_reduce  bus bandwidth of lab 03's six and of gloo's own, on raw gloo and on the link
compiler   the first run that trains: torch's compiler imported once, or by each rank
turns      small messages where ranks are batch jobs, and where they are usual processes
published  predicted ÷ published training steps of MPT on A100 and H100, compute alone
real_sizes  models of 1.3 and 8 billion parameters on ranks without values
gpus       a run, its memory and recording on GPUs; counted ÷ measured steps
ddp        ours ÷ torch's step, what both hide, and the best bucket: of lab 06's class
views      what pictures and redraws cost, up to 100,000 spans
whatif     predicted ÷ measured steps of runs that a replay of another run predicts
scaling    measured ÷ predicted steps on 2 to 16 ranks, from one recording; what 4,096 cost
traces     CPU seconds and memory of commands on large traces, and how they grow
scripts    training programs under `ddpkit run`: exit, hidden share, memory, or the refusal
servers    measured ÷ simulated parameter servers, 1 to 16 workers and 1 to 4 servers
grading    seconds for a submission, and a class of 60 of which a third is hostile
capstone   lab 15: points and costs of twelve strategies, and the savings of mended faults
torch_tests  torch's own test bodies that pass on the kit's group, in real and in emulated time
accusations  the watches over a run: their cost, and the mistakes that they name
mutate     machine-made mistakes in the answers, and those that no check refuses
statements  what an exercise costs its author: statements of its checks and answers
seeds      wrong answers of a lab that pass under a seed of the grader's questions
soak       hundreds of faults in a row, after each of which everything works and nothing is left

A machine's seconds say little on another machine, and less on a busy one. So what is compared is
measured side by side, in turns, and a figure comes with its spread.
"""
