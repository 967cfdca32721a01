"""The command line `deeprec-ext`: one file per sub-command, each with `add(subparsers)` and `run(arguments) -> exit code`."""
