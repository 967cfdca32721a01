"""The baseline: stock TensorFlow with parameter servers, and stop – checkpoint – restart as its only way to another size.

`train.py` is the script that is trained (also, unchanged, under `deeprec-ext run`), `run.py` measures it on stock TensorFlow.
"""
