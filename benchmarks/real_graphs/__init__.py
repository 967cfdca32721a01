"""Graphs of the size and shape that public training scripts have, and what a change or a loss of PS costs them."""
