"""TFJobs on Kubernetes: the contract of `kubeflow.org/v1`, the operator that keeps it, and what makes a job elastic there.

Each room imports only those below it:

- `operator`: the process that watches and acts;
- `arbiting`: what the arbiter of a cluster decides from, purely from manifests;
- `reconciling`: what is to be done, decided purely from what there is;
- `pods`: the manifests of pods, the AIMaster's among them, and of what they need;
- `api`: a client of the Kubernetes API, and what is asked of a cluster with it;
- `model`: a TFJob and what its words mean.

`manifests/`, `images/`: what is installed. Master side: nothing here imports TensorFlow.
"""
