"""System call filter of a worker: what a query never needs is refused by the kernel.

A classic BPF program, written out here because it is short: load the number of the call, compare, return.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_CLONE_THREAD = 0x00010000
_X32 = 0x40000000
_AF_INET, _AF_INET6, _AF_NETLINK = 2, 10, 16
_STREAM, _DATAGRAM = 1, 2
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
_PR_SET_NO_NEW_PRIVS = 38

# (x86-64, aarch64); None where the call does not exist.
_NEVER: dict[str, tuple[int | None, int | None]] = {
    "execve": (59, 221),
    "execveat": (322, 281),
    "fork": (57, None),
    "vfork": (58, None),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kill": (62, 129),
    "tkill": (200, 130),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "umount2": (166, 39),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsmount": (432, 432),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "memfd_create": (319, 279),
    "open_by_handle_at": (304, 265),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "socketpair": (53, 199),
}
_CLONE, _CLONE3, _SOCKET, _TGKILL = (56, 220), (435, 435), (41, 198), (234, 131)
_ARCHES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("HBBI", code, yes, no, value)


def _refuse(number: int) -> bytes:
    return _step(_RETURN, _REFUSE | number)


def program(machine: str, pid: int, *, sockets: bool, datagrams: bool) -> bytes:
    """The filter for a machine. `sockets` lets TCP through (an object store), `datagrams` also DNS."""
    at, arch = _ARCHES[machine]
    steps = [
        _step(_LOAD, _ARCH_AT),
        _step(_EQUAL, arch, 1, 0),
        _refuse(errno.EPERM),
        _step(_LOAD, _NUMBER_AT),
        # The x32 calls are the same calls under other numbers.
        _step(_AT_LEAST, _X32, 0, 1),
        _refuse(errno.EPERM),
    ]
    for numbers in _NEVER.values():
        if (number := numbers[at]) is not None:
            steps += [_step(_EQUAL, number, 0, 1), _refuse(errno.EPERM)]
    # Its flags are behind a pointer, where a filter cannot look: the C library falls back to clone.
    steps += [_step(_EQUAL, _CLONE3[at], 0, 1), _refuse(errno.ENOSYS)]
    steps += _when(_CLONE[at], [_argument(0), _step(_ANY_BIT, _CLONE_THREAD, 1, 0), _refuse(errno.EPERM)])
    # abort() signals its own process; nobody else may be.
    steps += _when(_TGKILL[at], [_argument(0), _step(_EQUAL, pid, 1, 0), _refuse(errno.EPERM)])
    steps += _when(_SOCKET[at], _socket_rule(datagrams) if sockets else [_refuse(errno.EPERM)])
    steps.append(_step(_RETURN, _ALLOW))
    return b"".join(steps)


def _socket_rule(datagrams: bool) -> list[bytes]:
    kinds = [_argument(1), _step(0x54, 0xF), _step(_EQUAL, _STREAM, 1, 0), _refuse(errno.EPERM)]
    families = [
        _argument(0),
        _step(_EQUAL, _AF_INET, 3, 0),
        _step(_EQUAL, _AF_INET6, 2, 0),
        _step(_EQUAL, _AF_NETLINK, 1, 0) if datagrams else _step(_EQUAL, _AF_INET6, 1, 0),
        _refuse(errno.EPERM),
    ]
    return families if datagrams else families + kinds


def _argument(index: int) -> bytes:
    return _step(_LOAD, _ARGUMENTS_AT + 8 * index)


def _when(number: int, rule: list[bytes]) -> list[bytes]:
    """The rule for one call, which ends in allowing it; for the others the number is as it was."""
    return [_step(_EQUAL, number, 0, len(rule) + 1), *rule, _step(_RETURN, _ALLOW)]


def install(*, sockets: bool, datagrams: bool) -> None:
    """Put the filter up for this thread and all it starts. There is no way back."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = program(platform.machine(), os.getpid(), sockets=sockets, datagrams=datagrams)
    steps = ctypes.create_string_buffer(code, len(code))
    head = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(steps)))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_NO_NEW_PRIVS")
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, head, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_SECCOMP")
