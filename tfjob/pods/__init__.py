"""Manifests of pods, pure.

- `replica`: a pod of the contract and its service, with its `tf_config`, and its `gang` where a scheduler starts all or none;
- `injection`: what an elastic pod gets on top of the user's;
- `aimaster`: the AIMaster's own pod, and all that it needs;
- what both need: `certificates`, `protection` (policies, disruption budget), `rights`, `restricted` (the pod
  security standard), `merging` (what an administrator wants of every pod that we make), `spot` (the wish for such nodes).
"""
