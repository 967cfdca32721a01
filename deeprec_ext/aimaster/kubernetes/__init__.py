"""The AIMaster as a pod of a TFJob: what the launcher is on one machine, done by Kubernetes and by the AIMaster itself.

- `written`: where the job is written down, and how a role's pod is made from it;
- `naming`, `reading`: pure, between the AIMaster's names and pods, and from a pod's manifest to what has become of it;
- `making`, `kept`, `backend`: the pods as `aimaster.pods.backend.PodBackend` has them, made again when they are lost;
- `replicas`: the same beside Kubeflow, whose operator makes the pods;
- `reclaim`: notices that a node is about to go;
- `snapshot`, `keeping`: what survives the AIMaster's own pod, in a ConfigMap;
- `following`, `reporting`: the TFJob: what its user asks for, and what it tells of the job;
- `remembering`: the history of the cluster's jobs: how the job begins by it, and what is added at its end;
- `ending`: the end of the job, which on one machine is the launcher's;
- `running`: all of it wired together, for `python -m deeprec_ext.aimaster --tfjob`.
"""
