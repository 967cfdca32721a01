"""Manifests of pods, pure.

- `replica`: a pod of the contract and its service, with its `tf_config`, and its `gang` where a scheduler starts all or none;
- `injection`: what an elastic pod gets on top of the user's;
- what that and the AIMaster need: `certificates`, `protection` (policies, disruption budget), `rights`, `restricted` (the pod
  security standard), `merging` (what an administrator wants of every pod that we make).
"""
