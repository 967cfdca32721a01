"""The protocol between AIMaster, agents, launcher and commands."""

PROTOCOL_MAJOR = 1
PROTOCOL_MINOR = 0
