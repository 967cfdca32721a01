"""Lies of a trainer with its own certificate, against a job that really trains."""
