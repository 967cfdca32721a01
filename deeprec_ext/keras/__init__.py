"""Keras's `fit`, `evaluate` and `predict` on parameter servers, unchanged (docs/mechanisms.md, "Keras").

A step of the model (`train_step`, whatever the user made of it) is traced as a function of one batch (`captured`), its
variables are divided (`ownership`), what it does with whole tables is done to rows (`rewriting`), its ops are placed
(`placing`), and all of it is imported into a graph on slots (`stepgraph`), which an elastic session runs (`opening`), as it
runs an Estimator's. Keras's own variables are windows on those (`windows`), and large ones have no storage here (`unmade`).
`stepping` is what Keras calls instead of its functions; `entry` puts it there; `keras2` and `keras3` have what is of one
generation alone, and nothing else knows which it is.
Records that are given to `fit` are leased where they can be, and its epochs are those of the job then (`leased/`).
"""
