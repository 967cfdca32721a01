"""What a lying role can rightly end the job with, because it is its own to say."""

from __future__ import annotations

ENDS_THE_JOB = ("refusal", "catalogue", "finished")
"""Of a chief: that its script cannot be made elastic; that its model is another one than that of others; that its script has
ended. Of nobody else."""
