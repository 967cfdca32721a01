"""Disk backups: the format, the chains, reading, verifying, export. See docs/mechanisms.md, "Disk backups".

A *cut* is one file per slot, written by the PS that own the slots while training goes on, and a manifest that is written last.
A *chain* is a base (everything) and the deltas that follow it (rows that changed). Reading needs no job, and listing and
verifying need no TensorFlow: `files` and `export` import it where it is needed.

`manifest`, `chains` and `model` use the standard library alone: the AIMaster plans cuts with them.
"""
