"""
Run a command where no user namespace can be made, as containers have it: `python forbidden.py COMMAND...`.

A seccomp filter, inherited by everything that the command starts, refuses unshare and clone with CLONE_NEWUSER, and has
no clone3. It needs root. The numbers are those of linux/seccomp.h, linux/bpf_common.h and the kernel's tables of calls.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

CALLS = {"x86_64": (272, 56, 435), "aarch64": (97, 220, 435)}  # unshare, clone, clone3
NEW_USER = 0x10000000

LOAD = 0x20  # BPF_LD | BPF_W | BPF_ABS
IF_EQUAL = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
IF_ANY_BIT = 0x45  # BPF_JMP | BPF_JSET | BPF_K
RETURN = 0x06  # BPF_RET | BPF_K
ALLOW = 0x7FFF0000
REFUSE = 0x00050000
NUMBER, FIRST_ARGUMENT = 0, 16  # places in struct seccomp_data; both machines have the lower half first


def program(unshare: int, clone: int, clone3: int) -> list[tuple[int, int, int, int]]:
    """The instructions: code, how many to skip if it is true, if it is false, and the operand."""
    return [
        (LOAD, 0, 0, NUMBER),
        (IF_EQUAL, 5, 0, clone3),
        (IF_EQUAL, 1, 0, unshare),
        (IF_EQUAL, 0, 4, clone),
        (LOAD, 0, 0, FIRST_ARGUMENT),
        (IF_ANY_BIT, 0, 2, NEW_USER),
        (RETURN, 0, 0, REFUSE | errno.EPERM),
        (RETURN, 0, 0, REFUSE | errno.ENOSYS),
        (RETURN, 0, 0, ALLOW),
    ]


class Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def forbid() -> None:
    """Put the filter on this process and all that it starts."""
    instructions = [struct.pack("HBBI", *one) for one in program(*CALLS[platform.machine()])]
    wanted = Filter(len(instructions), b"".join(instructions))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(22, 2, ctypes.byref(wanted), 0, 0):  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    if platform.machine() not in CALLS:
        sys.exit(77)
    try:
        forbid()
    except PermissionError:
        sys.exit(77)
    os.execvp(sys.argv[1], sys.argv[1:])
