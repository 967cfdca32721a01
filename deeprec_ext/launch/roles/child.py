"""What stands between launcher and role for some milliseconds: `python -I -S child.py ORDERS PROGRAM ARG...`.

It makes a process group of its own, enters the role's cgroups and the job's namespaces, asks the kernel to kill the role when
the launcher dies, whatever it dies of, and becomes the role. ORDERS, with colons between them: `PID` of the launcher,
`umask=OCTAL` of the role, `cgroup=FILE` (it writes itself into it), `namespace=NUMBER` (an open file). It is a program of its
own, and no `preexec_fn`, because running Python between fork and exec of a process with gRPC threads can deadlock. Only the
standard library, and nothing of this package: it must start fast.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    pid, *orders = sys.argv[1].split(":")
    launcher = int(pid)
    os.setpgid(0, 0)  # the launcher signals the group, and Ctrl-C at the terminal reaches the launcher alone
    libc = ctypes.CDLL(None, use_errno=True)
    for order in orders:
        what, _, value = order.partition("=")
        if what == "umask":
            os.umask(int(value, 8))
        elif what == "cgroup":
            _enter_group(value)
        elif libc.setns(int(value), 0) != 0:
            _fail(f"cannot enter the network of the job: {os.strerror(ctypes.get_errno())}")
        else:
            os.close(int(value))
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # after all else: a change of credentials would take it back
    if os.getppid() != launcher:  # it died before the request: nobody would kill us any more
        sys.exit(1)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):  # "ignored" would survive the exec
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        _fail(f"cannot start {sys.argv[2]}: {error.strerror}", 127)


def _enter_group(file: str) -> None:
    try:
        with open(file, "w") as processes:
            processes.write("0")
    except OSError as error:
        _fail(f"cannot enter {file}: {error.strerror}")


def _fail(why: str, code: int = 126) -> None:
    print(f"deeprec-ext: {why}", file=sys.stderr, flush=True)
    os._exit(code)


if __name__ == "__main__":
    main()
