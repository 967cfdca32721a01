"""Disk backups: the format, the chains, reading, verifying, export. See docs/mechanisms.md, "Disk backups".

A *snapshot* is what is consistent on disk: one file per slot, written by the PS that own the slots while training goes on, and
a manifest. Writing the manifest under its name is the *commit*: without it the files do not exist. Names of files, settings and
messages call a snapshot a *cut*, and the protocol calls a commit a *seal*; those stay as they are.
A *chain* is a base (everything) and the deltas that follow it (rows that changed). Reading needs no job, and listing and
verifying need no TensorFlow: `files` and `export` import it where it is needed.

`manifest`, `chains` and `model` use the standard library alone: the AIMaster plans snapshots with them.
"""
