"""What a process that runs answers may do, as far as this system can hold it to that.

Stands on Python's own library alone, and can be loaded by its path. Each step that a system doesn't
have is left out and said so: `holds` lists what a process would be held to here. Guarantees: a
confined process can't be let loose again, and neither can what it starts. Leaves to others: killing
it (`child`), and defending the operating system itself: this keeps honest marks honest, it isn't a
prison.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MEMORY_BYTES = 2 * 1024**3
FILE_BYTES = 16 * 1024**2
OPEN_FILES = 64
"""Few, and small: a file that was removed while it is open takes room that nobody sees."""

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 4, 22, 36, 38
_CLONE_NEWUSER, _CLONE_NEWNET, _CLONE_THREAD = 0x10000000, 0x40000000, 0x10000


class Hold(NamedTuple):
    """Something that a process is held to: whether that works here, in words."""

    name: str
    holds: bool
    words: str


# ---- the process that checks -------------------------------------------------------------------


def harden() -> bool:
    """Let no other process of this user read this one's memory; whether that worked."""
    return _prctl(_PR_SET_DUMPABLE, 0)


def adopt_orphans() -> bool:
    """From now on whatever a child leaves behind becomes a child of this process."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int, more: object = 0) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    return bool(_libc.prctl(option, ctypes.c_ulong(value), more, 0, 0) == 0)


# ---- the process that is confined --------------------------------------------------------------


def leave_network() -> bool:
    """Go where there is no network, with no rights over anything outside; whether that worked.

    For a process with one thread, such as one that has just been started.
    """
    uid, gid = os.getuid(), os.getgid()
    if not sys.platform.startswith("linux") or _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET) != 0:
        return False
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with suppress(OSError):
            Path("/proc/self", name).write_text(text, encoding="ascii")
    return True


def confine(writable: Sequence[str | Path], cpu_s: float, readable: Iterable[str | Path]) -> None:
    """Confine this process, for good.

    Args:
        writable: folders in which it may make, change and remove plain files and folders.
        cpu_s: seconds of processor time after which the system ends it, whoever watches it.
        readable: what it may read, such as `library()`.
    """
    seconds = int(cpu_s) + 1
    for name, limit in (
        ("RLIMIT_CPU", seconds),
        ("RLIMIT_AS", MEMORY_BYTES),
        ("RLIMIT_FSIZE", FILE_BYTES),
        ("RLIMIT_NOFILE", OPEN_FILES),
        ("RLIMIT_CORE", 0),
    ):
        with suppress(OSError, ValueError, AttributeError):
            resource.setrlimit(getattr(resource, name), (limit, limit))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    restrict_files(writable, readable)
    restrict_calls()


def library(*, package: bool = True) -> Iterator[str]:
    """What every Python program reads: its library, installed packages, and the loader's files.

    Of this package its engine and its lab, unless `package` is False; never what grades, nor the
    solutions that a wheel carries.
    """
    own = Path(__file__).resolve().parent
    yield from ("/dev/null", "/dev/urandom", "/dev/zero", "/etc/ld.so.cache", "/etc/localtime")
    yield from ("/usr/share/zoneinfo", "/usr/lib", "/lib", "/lib64", "/usr/local/lib")
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    for root in {Path(sysconfig.get_path(name)).resolve() for name in names}:
        if not own.is_relative_to(root):
            yield str(root)
        else:  # an installed wheel lies among the packages
            yield from (str(place) for place in root.iterdir() if place != own.parent)
    if package:
        hidden = (own, own.parent / "_bundle")
        yield from (str(place) for place in own.parent.iterdir() if place not in hidden)


# ---- files: Landlock ---------------------------------------------------------------------------

_NR_LANDLOCK = 444  # create_ruleset; add_rule and restrict_self are the next two
_READ = 1 << 2 | 1 << 3  # files and folders
_CHANGE = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 14
"""Write, remove, make folders and plain files, cut: no links, pipes, sockets or devices."""
_OF_A_FILE = 1 << 1 | 1 << 2 | 1 << 14
_FS_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # how many each version knows; later ones know 16


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def landlock_version() -> int:
    """The version of Landlock that this kernel has; 0 for none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(_libc.syscall(_NR_LANDLOCK, None, ctypes.c_size_t(0), 1)))


def restrict_files(writable: Iterable[str | Path], readable: Iterable[str | Path]) -> bool:
    """Let this process read and write nothing else, start no program, and reach no port.

    It also keeps it from the memory of processes outside, and from sending them signals.
    """
    version = landlock_version()
    if not version:
        return False
    rights = (1 << _FS_RIGHTS.get(version, 16)) - 1
    known = [rights, *[0b11] * ((version >= 4) + (version >= 6))]  # files, ports, signals
    attributes = struct.pack(f"<{len(known)}Q", *known)
    ruleset = _libc.syscall(_NR_LANDLOCK, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return False
    for path in readable:
        _allow(ruleset, path, _READ & rights)
    for path in writable:
        _allow(ruleset, path, (_READ | _CHANGE) & rights)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    done = bool(_libc.syscall(_NR_LANDLOCK + 2, ruleset, 0) == 0)
    os.close(ruleset)
    return done


def _allow(ruleset: int, path: str | Path, rights: int) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    rights &= ~0 if Path(path).is_dir() else _OF_A_FILE
    rule = _PathBeneath(rights, beneath)
    _libc.syscall(_NR_LANDLOCK + 1, ruleset, 1, ctypes.byref(rule), 0)
    os.close(beneath)


# ---- system calls: seccomp ---------------------------------------------------------------------


class _Calls(NamedTuple):
    """Numbers of system calls on one kind of machine.

    `refused` are fork, vfork, execve, execveat, ptrace, process_vm_readv, process_vm_writev,
    socket, tkill, rt_sigqueueinfo, rt_tgsigqueueinfo, pidfd_send_signal; then what reaches others
    by other ways, or outlives the process: shmget, shmat, msgget, semget, mq_open, add_key,
    request_key, keyctl, connect, bind, sendmsg, sendmmsg, memfd_create, setpriority, ioprio_set,
    unshare, setns, chroot, bpf, perf_event_open, kcmp, userfaultfd, io_uring_setup, pidfd_getfd,
    memfd_secret. `idle` are those that Landlock doesn't know, and that do nothing here, so that
    copying a file goes on: chmod, chown, utime, setxattr, removexattr and their kin. `own` are
    those that a process may use on itself: kill, tgkill, prlimit64, sched_setparam,
    sched_setscheduler, sched_setaffinity, sched_setattr.
    """

    machine: int
    refused: tuple[int, ...]
    idle: tuple[int, ...]
    own: tuple[int, ...]
    sendto: int
    clone: int
    clone3: int = 435


_NEW = (425, 438, 447)  # these have one number everywhere
_X86: tuple[int, ...] = (57, 58, 59, 322, 101, 310, 311, 41, 200, 129, 297, 424)
_X86 += (29, 30, 68, 64, 240, 248, 249, 250, 42, 49, 46, 307, 319, 141, 251)
_X86 += (272, 308, 161, 321, 298, 312, 323, *_NEW)
_ARM: tuple[int, ...] = (221, 281, 117, 270, 271, 198, 130, 138, 240, 424)
_ARM += (194, 196, 186, 190, 180, 217, 218, 219, 203, 200, 211, 269, 279, 140, 30)
_ARM += (97, 268, 51, 280, 241, 272, 282, *_NEW)
_NEW_IDLE = (452, 463, 466)
_X86_IDLE = (90, 91, 92, 93, 94, 132, 188, 189, 190, 197, 198, 199, 235, 260, 261, 268, 280)
_ARM_IDLE = (5, 6, 7, 14, 15, 16, 52, 53, 54, 55, 88)
_X86_OWN, _ARM_OWN = (62, 234, 302, 142, 144, 203, 314), (129, 131, 261, 118, 119, 122, 274)
_CALLS = {
    "x86_64": _Calls(0xC000003E, _X86, (*_X86_IDLE, *_NEW_IDLE), _X86_OWN, 44, 56),
    "aarch64": _Calls(0xC00000B7, _ARM, (*_ARM_IDLE, *_NEW_IDLE), _ARM_OWN, 206, 220),
}
_LOAD, _IF_EQUAL, _IF_SET, _IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NUMBER, _MACHINE, _FIRST_ARGUMENT, _FIFTH_ARGUMENT = 0, 4, 16, 48
_OTHER_NUMBERING = 0x40000000


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def restrict_calls() -> bool:
    """Let this process make no other process, start no program, reach nobody, and signal nobody.

    Neither can it leave anything in the system's memory, or change what a file is said to be.
    """
    known = _CALLS.get(platform.machine())
    if known is None or not sys.platform.startswith("linux"):
        return False
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    rules = _filter(known, os.getpid())
    code = b"".join(struct.pack("<HBBI", *rule) for rule in rules)
    program = _Program(len(rules), code)
    return _prctl(_PR_SET_SECCOMP, 2, ctypes.byref(program))


def _filter(calls: _Calls, pid: int) -> list[tuple[int, int, int, int]]:
    """The rules: operation, how far to jump if so, if not, and what is compared or returned."""
    refuse, allow = (_RETURN, 0, 0, _REFUSE | errno.EPERM), (_RETURN, 0, 0, _ALLOW)
    rules = [(_LOAD, 0, 0, _MACHINE), (_IF_EQUAL, 1, 0, calls.machine), refuse]
    rules += [(_LOAD, 0, 0, _NUMBER), (_IF_AT_LEAST, 0, 1, _OTHER_NUMBERING), refuse]
    for number in calls.refused:
        rules += [(_IF_EQUAL, 0, 1, number), refuse]
    for number in calls.idle:
        rules += [(_IF_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    # To whom it is connected it may send, and to no address; an address has two halves.
    rules += [(_IF_EQUAL, 0, 6, calls.sendto), (_LOAD, 0, 0, _FIFTH_ARGUMENT)]
    rules += [(_IF_EQUAL, 0, 2, 0), (_LOAD, 0, 0, _FIFTH_ARGUMENT + 4)]
    rules += [(_IF_EQUAL, 1, 0, 0), refuse, allow]
    for number in calls.own:
        rules += [(_IF_EQUAL, 0, 5, number), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
        rules += [(_IF_EQUAL, 1, 0, 0), (_IF_EQUAL, 0, 1, pid), allow, refuse]
    # Threads may begin; a library that can't look into clone3 goes back to clone.
    rules += [(_IF_EQUAL, 0, 1, calls.clone3), (_RETURN, 0, 0, _REFUSE | errno.ENOSYS)]
    rules += [(_IF_EQUAL, 0, 3, calls.clone), (_LOAD, 0, 0, _FIRST_ARGUMENT)]
    return [*rules, (_IF_SET, 1, 0, _CLONE_THREAD), refuse, allow]


# ---- what holds here ---------------------------------------------------------------------------


def holds() -> list[Hold]:
    """What a process that runs answers is held to on this system.

    The steps that can't be undone are tried in a process of its own.
    """
    calls = _works(restrict_calls)
    found = (
        ("processor time", True, "measured by the grader, and limited by the system"),
        ("memory", _works(_limits_memory), f"{MEMORY_BYTES // 1024**3} GB"),
        ("file size", True, f"{FILE_BYTES // 1024**2} MB"),
        ("files", landlock_version() > 0, "reads the library, writes a scratch folder"),
        ("network", calls or _works(leave_network), "none"),
        ("other processes", calls, "starts none, signals none, sees into none"),
    )
    return [Hold(name, yes, words if yes else "this system can't") for name, yes, words in found]


def _limits_memory() -> bool:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        bytearray(MEMORY_BYTES)
    except MemoryError:
        return True
    return False


def _works(step: object) -> bool:
    """Whether a step works, tried in a process that ends with it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        with suppress(BaseException):
            code = int(not step())  # type: ignore[operator]
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
