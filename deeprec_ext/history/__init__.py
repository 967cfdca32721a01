"""The history of finished jobs as a service of a cluster: what they were like, the sizes they had, what that brought.

AIMasters add a job when it has ended, and ask when one begins; people look at the page, or ask with `deeprec-ext jobs`.
Rows lie in a database by URL (`database`, its schema in `tables`, `migrations`); who may read and add what, says the
certificate (`service`, `identities`). Free of TensorFlow and of the AIMaster: no job waits longer for it than `client` says.
"""
