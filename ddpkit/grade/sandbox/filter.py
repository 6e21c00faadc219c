"""A filter of the system calls in a sandbox: it refuses calls that neither Python nor gloo needs.

libseccomp (Debian: libseccomp2) makes a program, which the kernel runs at each system call. A
refused call fails with "Operation not permitted", or as if the kernel did not have the call.
Without the library there is no filter, and `ddpkit doctor` reports this; the sandbox then relies on
its namespaces alone.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import socket
import tempfile
from collections.abc import Iterator

# Names as in the manual, section 2; libseccomp skips names that the machine does not have.
REFUSED = {
    "the kernel's keys": "add_key keyctl request_key",
    "namespaces": "unshare setns",
    "mounts": "mount umount umount2 pivot_root chroot mount_setattr move_mount open_tree fsopen"
    " fsconfig fsmount fspick open_tree_attr",
    "other processes": "ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd",
    "wide doors into the kernel": "bpf perf_event_open userfaultfd io_uring_setup io_uring_enter"
    " io_uring_register fanotify_init open_by_handle_at name_to_handle_at personality modify_ldt"
    " iopl ioperm lookup_dcookie vm86 vm86old uselib _sysctl sysfs ustat nfsservctl",
    "asynchronous files": "io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents",
    "memory that no process has": "memfd_create memfd_secret shmget shmat shmctl msgget semget"
    " mq_open move_pages migrate_pages mbind set_mempolicy set_mempolicy_home_node",
    "the machine": "acct quotactl quotactl_fd reboot swapon swapoff syslog vhangup sethostname"
    " setdomainname settimeofday clock_settime clock_adjtime adjtimex kexec_load kexec_file_load"
    " init_module finit_module delete_module create_module",
}
# Sockets of ranks and of Jupyter; Jupyter's libzmq reads network addresses through netlink.
FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)
NETLINK_ROUTE = 0
MOST_FAMILY = 64  # the kernel knows fewer families of sockets
# Flags of clone that make a mount, cgroup, uts, ipc, user, pid or net namespace.
NEW_NAMESPACES = tuple(1 << bit for bit in (17, 25, 26, 27, 28, 29, 30))
TERMINAL = (0x5412, 0x541C)  # ioctls for typing into a terminal: TIOCSTI, TIOCLINUX
ALLOW, REFUSE = 0x7FFF0000, 0x00050000  # SCMP_ACT_ALLOW, SCMP_ACT_ERRNO(0)
UNEQUAL, EQUAL, AT_LEAST, MASKED = 1, 4, 5, 7  # SCMP_CMP_NE, _EQ, _GE, _MASKED_EQ


class _Comparison(ctypes.Structure):
    """A condition on one argument of a call, laid out as `struct scmp_arg_cmp`."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("how", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    library.seccomp_init.argtypes = [ctypes.c_uint32]
    library.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(_Comparison),
    ]
    library.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.seccomp_load.argtypes = [ctypes.c_void_p]
    return library


@functools.cache
def trouble() -> str:
    """Return the reason why this machine can have no filter; "" if the filter works."""
    try:
        program()
    except OSError as error:
        return f"no filter of system calls ({error}): apt-get install libseccomp2"
    return ""


@functools.cache
def program() -> bytes:
    """Return the filter as bytecode.

    Raises OSError if libseccomp is missing, or if it reports an error.
    """
    with tempfile.TemporaryFile() as file:
        if status := _library().seccomp_export_bpf(_rules(), file.fileno()):
            raise OSError(-status, os.strerror(-status))
        file.seek(0)
        return file.read()


def load() -> None:
    """Apply the filter to this process for good, as the last step of a `preexec_fn`."""
    if _library().seccomp_load(_rules()):
        os._exit(1)


@functools.cache
def _rules() -> int:
    library = _library()
    rules: int | None = library.seccomp_init(ALLOW)
    if rules is None:
        raise OSError(errno.ENOMEM, "libseccomp cannot make a filter")
    for name, error, comparisons in _refusals():
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number == -1:  # the library's version does not know the call
            continue
        array = (_Comparison * len(comparisons))(*comparisons)
        action = REFUSE | error
        if status := library.seccomp_rule_add_array(rules, action, number, len(comparisons), array):
            raise OSError(-status, f"{name}: {os.strerror(-status)}")
    return rules


def _refusals() -> Iterator[tuple[str, int, list[_Comparison]]]:
    """Yield each refused call, the error that it gets, and the conditions on its arguments."""
    for names in REFUSED.values():
        for name in names.split():
            yield name, errno.EPERM, []
    # the filter cannot read clone3's flags in memory; after ENOSYS, callers fall back to clone
    yield "clone3", errno.ENOSYS, []
    for flag in NEW_NAMESPACES:
        yield "clone", errno.EPERM, [_Comparison(0, MASKED, flag, flag)]
    for request in TERMINAL:
        yield "ioctl", errno.EPERM, [_Comparison(1, MASKED, 0xFFFFFFFF, request)]
    for family in set(range(MOST_FAMILY)) - set(FAMILIES):
        yield "socket", errno.EAFNOSUPPORT, [_Comparison(0, EQUAL, family)]
    yield "socket", errno.EAFNOSUPPORT, [_Comparison(0, AT_LEAST, MOST_FAMILY)]
    other = [_Comparison(0, EQUAL, socket.AF_NETLINK), _Comparison(2, UNEQUAL, NETLINK_ROUTE)]
    yield "socket", errno.EPROTONOSUPPORT, other
