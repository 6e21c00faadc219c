"""The sandbox of a submission: code of a stranger, without network, within limits.

base         the parts that all sandboxes share: limits, the course inside, the command line
levels       chooses the strongest sandbox that this machine can make
bwrap        the strongest: namespaces, by bubblewrap
other_user   a weaker one: another user id, for a root grader if the kernel refuses namespaces
own_account  no protection, only limits: for a student's own notebook at home
filter       system calls that no process of a sandbox may make
users        user ids that nobody has
process      the kernel's facts about a process, in spite of a misleading name or thread
cgroup       a control group around a sandbox: the kernel's own limits, where one can be made
meter        the use of a sandbox's processes, counted from outside
"""
