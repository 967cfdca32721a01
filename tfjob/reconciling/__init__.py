"""What is to be done for a TFJob: a pure function from what there is (`observed`) to `actions`, without a memory of its own.

- `parking`: jobs that have no pods for a while, because of their user, the arbiter, or want of room;
- `reconcile` asks the others, for jobs whose pods we make: `replicas` (pods that lack or are too many), `verdict` (how the job
  is), `elastic_end` (as its AIMaster says it), `limits` (it has had its chances), `ends` (cleaning up), `abnormal` (pods that
  cannot start);
- beside Kubeflow's own operator: `admission` (what a job becomes when it is created), `beside` (what is decided then);
- of the ET operator's kinds: `et`.
"""
