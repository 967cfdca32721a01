"""The cluster as the arbiter decides from it, put together purely: from manifests to `deeprec_ext.arbiter.observed.Cluster`.

There may be 30 000 pods, so of each object only what counts is kept (`seen`), and sums of pods that concern no job are made
anew only where something has changed (`tally`). `observing` puts it together: jobs (`bidders`), nodes in groups (`reach`), and
what else limits jobs (`limiting`): quotas with scopes (`scopes`), queues of others (`kueue`, `volcano`, by `foreign`). What
becomes of it is `operator/arbiter`'s.
"""
