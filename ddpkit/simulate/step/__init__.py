"""Training steps: recorded steps on other clusters, and steps made from numbers.

recorded       Step: the computation of a rank in a training step; `Step.of_trace` from a recording
models         ModelTable: layers of ResNet, BERT and GPT, with parameters and FLOPs
buckets        Gradient, Bucket; assign_buckets by the rule of torch's DDP
events         step_program: a step of all ranks as a program, with which `replay` must agree
streams        all_reduces in several process groups, which take the buckets in turns
data_parallel  replay, Replay: a step on any number of ranks, over any link; sweep over caps
shards         shard_program: parameters gathered before use, gradients scattered after
pipeline       pipeline_plans, pipeline_time: schedules of a pipeline, as a program, and their time;
               bubbles, held: their idle time and stored micro-batches, also for a recorded run
servers        parameter_server, Served: workers that pull and push, and servers that answer
noise          noisy_steps: steps with late ranks, different ranks in each step
host_ahead     HostAhead: the host's time in a step, if the host runs ahead of its device
scaling        scaling, Scaled: a step on 1, 2, 4, … ranks, with a growing or a shared batch
whatif         what_if: the Trace of a recorded run with new buckets, a new link, or a slow rank;
               fit_link: the link on which all_reduces take as long as the recorded ones
parallelism    StepCalls: the kinds of parallelism in a recorded step; `predict` needs data
               parallelism
forecast       forecast, Forecast: a recorded run as a model of other runs, with its error
"""
