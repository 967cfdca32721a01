"""The cluster as the arbiter decides from it, put together purely: from manifests to `deeprec_ext.arbiter.observed.Cluster`.

There may be 30 000 pods, so of each object only what counts is kept (`seen`), and sums of pods that concern no job are made
anew only where something has changed (`tally`). What becomes of it is `operator/arbiter`'s.
"""
