"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "jobs1", None

TABLE = "deeprec_history_jobs"


def upgrade() -> None:
    op.create_table(
        TABLE,
        sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("namespace", sa.String(63), nullable=False),
        sa.Column("uid", sa.String(253), nullable=False),
        sa.Column("finished", sa.Double(), nullable=False),
        sa.Column("name", sa.String(253), nullable=False),
        sa.Column("script", sa.String(253), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.UniqueConstraint("namespace", "uid", name=f"{TABLE}_uid"),
    )
    op.create_index(f"{TABLE}_newest", TABLE, ["finished", "number"])
    op.create_index(f"{TABLE}_of_script", TABLE, ["namespace", "script", "finished", "number"])
    op.create_index(f"{TABLE}_of_namespace", TABLE, ["namespace", "finished", "number"])


def downgrade() -> None:
    op.drop_table(TABLE)
