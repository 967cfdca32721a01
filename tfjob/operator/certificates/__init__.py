"""Certificates that the operator makes and renews.

`shared_secrets` keeps them in a Secret; `serving_certificates` is what the webhook answers with, `history_certificates` lets an
AIMaster ask the history of jobs, `renewals` renews those of the jobs in time.
"""
