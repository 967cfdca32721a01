"""The operator's process: watches TFJobs, their pods and services, and carries out what `tfjob.reconciling` decides.

Level-triggered: every change of anything puts the name of its job into a queue, and whoever takes it out looks at everything
there is of that job. What was decided is carried out in an order that can be cut off anywhere.

- `main` wires it together, `leader` sees to it that only one acts;
- `controller` looks and acts; `informer` and `queue` are its eyes and its memory, `aimasters` sees to an elastic job's
  AIMaster, `priorities` reads priority classes, `recorder` writes Events, `job_counts` counts what has become of jobs;
- `web` serves probes and metrics;
- `webhook` answers the API server beside Kubeflow's operator; `own_image` is what AIMasters run;
- `sight` knows in which namespaces what may be seen, and which rights are missing;
- `running` ends tasks together;
- `certificates` makes those that this cluster needs, and renews them;
- `et` sees to the ET operator's kinds, `arbiter` to what the jobs of a cluster may have.
"""
