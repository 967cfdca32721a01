"""Makes a network namespace for a job, and stands in it until stdin ends: `python -I -S netns.py`.

It says `ready` in one line, or why it cannot. Root needs no more than the namespace. Everybody else gets it with a user
namespace around it, in which they are who they were: files keep their owner, and nobody else may enter it. A program of its
own, because only a process of one thread may change its user namespace. Only the standard library, nothing of ours.
"""

import ctypes
import errno
import fcntl
import os
import signal
import socket
import struct
import sys

_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1
_PR_SET_PDEATHSIG = 1


def unshare(flags: int) -> None:
    """Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def enter_new() -> None:
    """Raises OSError where that is not allowed."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        try:
            return unshare(_NEWNET)
        except OSError as error:
            if error.errno != errno.EPERM:  # root of a container: as everybody else
                raise
    unshare(_NEWUSER | _NEWNET)
    for name, value in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(value)


def loopback_up() -> None:
    """Of the namespace that we are in. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(any_socket, _GET_FLAGS, request))[1]
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", flags | _UP))


def main() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        enter_new()
        loopback_up()
    except OSError as error:
        print(f"{error.filename}: {error.strerror}" if error.filename else error.strerror, flush=True)
        sys.exit(1)
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
