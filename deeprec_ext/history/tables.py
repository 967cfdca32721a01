"""The tables. A change of them is another file in `migrations/versions`; a test holds what those make to what stands here."""

from __future__ import annotations

import sqlalchemy as sa

from deeprec_ext.autoscaler.history.possible import TEXT_MAX

VERSION_TABLE = "deeprec_history_version"
"""Of Alembic. Named as ours: the database may have other tables of other programs."""

metadata = sa.MetaData()

JOBS = sa.Table(
    "deeprec_history_jobs", metadata,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("namespace", sa.String(63), nullable=False),
    sa.Column("uid", sa.String(TEXT_MAX), nullable=False),  # as its writer knows the job: written twice, it is there once
    sa.Column("finished", sa.Double(), nullable=False),  # Unix seconds
    sa.Column("name", sa.String(TEXT_MAX), nullable=False),
    sa.Column("script", sa.String(TEXT_MAX), nullable=False),
    sa.Column("record", sa.Text(), nullable=False),  # JSON: `record`
    sa.UniqueConstraint("namespace", "uid", name="deeprec_history_jobs_uid"),
    sa.Index("deeprec_history_jobs_newest", "finished", "number"),
    sa.Index("deeprec_history_jobs_of_script", "namespace", "script", "finished", "number"),
    sa.Index("deeprec_history_jobs_of_namespace", "namespace", "finished", "number"),
)  # fmt: skip
