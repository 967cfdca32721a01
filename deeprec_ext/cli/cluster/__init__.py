"""The commands for a TFJob: what needs the living AIMaster runs in its pod, the rest asks the API server.

`target` says which job is meant, `forwarding` runs a command in the AIMaster's pod (`inside` is the other end). One module per
command has what can be said or done where the AIMaster does not run, or may not be reached; `forwarding` has the rest.
`submit` is in `documents`, `planned`, `creating` and `waiting`.
"""
