"""The arbiter of the operator that leads: it watches the whole cluster, decides once a second at the most, and writes what jobs
may have.

It keeps nothing of its own: what jobs were allowed stands in their annotations, from where the next leader goes on.
"""
