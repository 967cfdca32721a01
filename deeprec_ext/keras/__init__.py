"""Keras's `fit`, `evaluate` and `predict` on parameter servers, unchanged (docs/mechanisms.md, "Keras").

A step of the model (`train_step`, whatever the user made of it) is traced as a function of one batch (`captured`), its
variables are divided (`ownership`), its ops placed (`placing`), and all of it imported into a graph on slots (`stepgraph`),
which an elastic session runs (`opening`), as it runs an Estimator's. Keras's own variables are windows on those (`windows`).
`stepping` is what Keras calls instead of its functions; `door` puts it there; `keras2` has what differs between generations.
"""
