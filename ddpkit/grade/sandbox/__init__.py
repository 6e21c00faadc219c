"""The sandbox in which a student's code runs, without network and within limits.

base         the parts of all sandboxes: limits, the copy of the course, the command line
levels       chooses the strongest sandbox that this machine can make
bwrap        the strongest sandbox: namespaces, made by bubblewrap
other_user   a weaker sandbox: another user id, if root grades and the kernel refuses namespaces
own_account  no sandbox, only limits, for a student's own notebook at home
filter       system calls that no process of a sandbox may make
users        user ids that are not in use
process      the kernel's data about a process, read safely even if its name misleads
cgroup       a control group around a sandbox, if possible: the kernel's own limits
meter        the resources that a sandbox's processes use, measured from outside
"""
