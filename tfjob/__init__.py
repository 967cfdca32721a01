"""TFJobs on Kubernetes: the contract of `kubeflow.org/v1`, the operator that keeps it, and what makes a job elastic there.

Each room imports only those below it:

- `operator`: the process that watches and acts;
- `reconciling`: what is to be done, decided purely from what there is;
- `aimaster`: the AIMaster's own pod, and all that it needs;
- `pods`: the manifests of the other pods, and what these and the AIMaster's have in common;
- `api`: a client of the Kubernetes API, and what is asked of a cluster with it;
- `annotations`: what makes a TFJob elastic;
- `model`: a TFJob and what its words mean.

`manifests/`, `images/`: what is installed. Master side: nothing here imports TensorFlow.
"""
