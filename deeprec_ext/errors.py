"""The errors of the project. A message says what happened, to what, and what to do."""


class DeepRecError(Exception):
    """Base of every error raised on purpose by this package."""

    exit_code = 1
    """Of the command line."""


class UsageError(DeepRecError):
    """The caller asked for something that cannot be."""

    exit_code = 2


class RefusedError(UsageError):
    """A script or a graph cannot be made elastic; the message names the reason and the remedy."""


class ProtocolError(DeepRecError):
    """The other side speaks another major version, or broke a rule of the protocol."""


class StaleError(DeepRecError):
    """A process, AIMaster or view that has been replaced tried to act."""


class UnreachableError(DeepRecError):
    """A process did not answer within its deadline."""


class JobFailedError(DeepRecError):
    """The job itself failed."""


class NoRoomError(DeepRecError):
    """A job has waited for room in its pool as long as it may: later it may have some (EX_TEMPFAIL of sysexits.h)."""

    exit_code = 75


LINE_MAX = 300


def one_line(error: Exception) -> str:
    """Its name, and of TensorFlow's long messages the lines that say something: a reason is one sentence."""
    lines = [line.strip(" =:") for line in str(error).splitlines()]
    noise = ("Graph execution error", "Additional GRPC", '{"created"')
    said = [line for line in lines if line and not line.startswith(noise)]
    return f"{type(error).__name__}: {' '.join(said[:2])}"[:LINE_MAX]
