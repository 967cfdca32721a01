"""Several jobs of one user on one machine, which share its cores by the cluster's arbiter.

A pool is a directory (`places`). Each launcher keeps a file of its job in it (`entry`) and looks from time to time whether
somebody leads; whoever holds the lock does (`leading`): from what all have written (`seen`) the arbiter decides what each may
have, and each is given of it what is free at this moment (`stepping`). `membership` is the launcher's part of it.
"""
