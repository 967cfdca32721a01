"""A `fit` whose records are leased from the data ledger, so that its epochs are those of the job.

`fitting` decides whether they can be, and calls Keras; `arrays` and `weights` make records of what it was given; `epochs` is
the way from one batch to the next and from one epoch to the next; `figures` are an epoch's, of the whole job; `roles` says
which callbacks run where.
"""
