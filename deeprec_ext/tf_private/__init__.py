"""TensorFlow below its public API: every import of `tensorflow.python`, every private name that is read, called or exchanged.

Nothing else does so (import-linter, `tests/unit/tf_private/test_only_here.py`). Each name stands here once, with its reason;
the table in docs/critiques.md lists them all. Which TensorFlow was tried: docs/dependencies.md; what one lacks: `missing`.
"""
