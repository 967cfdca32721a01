"""The operator's process: watches TFJobs, their pods and services, and carries out what `tfjob.reconcile` decides.

Level-triggered: every change of anything puts the name of its job into a queue, and whoever takes it out looks at everything
there is of that job. What was decided is carried out in an order that can be cut off anywhere. `main` wires it together,
`controller` looks and acts, `informer` and `queue` are its eyes and its memory, `leader` sees to it that only one acts.
"""
