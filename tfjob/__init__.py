"""TFJobs on Kubernetes: the contract of `kubeflow.org/v1`, the operator that keeps it, and what makes a job elastic there.

- pure, tables in and manifests out, in the order in which they are best read:
  - the contract: `names`, `times`, `quantities`, `spec`, `tf_config`, `pods`, `gang`,
    `templates` (whether the server would make a pod of one);
  - what the operator decides: `observed` (what there is), `actions` (what is to be done), `conditions`, `status`, `replicas`,
    `limits`, `ends`, `elastic`, `abnormal` (pods that cannot start), and `reconcile`, which asks them all;
  - what makes a job elastic: `annotations`, `injection` (what a pod gets on top of the user's), `aimaster` (the AIMaster's own
    pod) with its `rights`, `certificates`, `protection`, `restricted`, `merging`;
  - beside Kubeflow's own operator: `admission` (what a job becomes when it is created), `beside` (what is decided then);
- `api`: a thin asynchronous client of the Kubernetes API, manifests in and out as they are; `own_image` asks it;
- `kubeconfig`: which cluster; `finding`, `exec`, `logs`: a job by its name, commands in its pods, what they write;
  `unknown`: keys that nobody reads;
- `operator/`: the process that watches and acts;
- `manifests/`, `images/`: what is installed.

Master side: nothing here imports TensorFlow.
"""
