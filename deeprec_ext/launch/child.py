"""What stands between launcher and role for some milliseconds: `python -I -S child.py PID[:CGROUP...] PROGRAM ARG...`.

It makes a process group of its own, asks the kernel to kill the role when the launcher (PID) dies, whatever it dies of, enters
the role's cgroups (files into which it writes itself), and becomes the role. It is a program of its own, and
no `preexec_fn`, because running Python between fork and exec of a process with gRPC threads can deadlock. Only the standard
library, and nothing of this package: it must start fast.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    pid, *cgroups = sys.argv[1].split(":")
    launcher = int(pid)
    os.setpgid(0, 0)  # the launcher signals the group, and Ctrl-C at the terminal reaches the launcher alone
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != launcher:  # it died before the request: nobody would kill us any more
        sys.exit(1)
    for file in cgroups:
        try:
            with open(file, "w") as processes:
                processes.write("0")
        except OSError as error:
            print(f"deeprec-ext: cannot enter {file}: {error.strerror}", file=sys.stderr, flush=True)
            os._exit(126)
    for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):  # "ignored" would survive the exec
        signal.signal(ignored_by_python, signal.SIG_DFL)
    try:
        os.execvp(sys.argv[2], sys.argv[2:])
    except OSError as error:
        print(f"deeprec-ext: cannot start {sys.argv[2]}: {error.strerror}", file=sys.stderr, flush=True)
        os._exit(127)


if __name__ == "__main__":
    main()
