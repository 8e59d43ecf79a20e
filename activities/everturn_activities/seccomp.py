"""The system calls that commands in the sandbox are refused."""

import platform
import struct

# Numbers on x86_64 and aarch64. From 424 on they are the same everywhere.
_REFUSED = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "open_by_handle_at": (304, 265),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "pidfd_getfd": (438, 438),
    "mount_setattr": (442, 442),
}
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _KILL_PROCESS, _EPERM = 0x7FFF0000, 0x80000000, 0x00050001
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4
_X32 = 0x40000000


def program(machine: str = platform.machine()) -> bytes | None:
    """A filter for `bwrap --seccomp`, which answers EPERM; None for an unknown machine.

    Calls of another architecture end the process, because their numbers mean other things.
    """
    if machine not in _ARCHITECTURES:
        return None
    column, architecture = _ARCHITECTURES[machine]
    refused = [numbers[column] for numbers in _REFUSED.values()]
    instructions = [
        (_LOAD, 0, 0, _ARCHITECTURE_OFFSET),
        (_JUMP_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER_OFFSET),
        # Jumps count the instructions that they skip; the last one refuses.
        (_JUMP_AT_LEAST, len(refused) + 1, 0, _X32),
        *((_JUMP_EQUAL, len(refused) - index, 0, number) for index, number in enumerate(refused)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _EPERM),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)
