"""The arbiter of the operator that leads: it watches the whole cluster, decides once a second at the most, and writes what jobs
may have.

`watching` follows what there is (`following`), also queues of Kueue and Volcano where there are any (`queues`); `acting`
decides and writes, `undoing` takes back, `page` shows. It keeps nothing of its own: what jobs were allowed stands in their
annotations, from where the next leader goes on.
"""
