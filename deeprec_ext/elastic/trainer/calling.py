"""How the script calls this process: from its `tf.train.Server`, else from TF_CONFIG, which it may have rewritten."""

from __future__ import annotations

import json
import logging
import os
import threading

from tensorflow.core.protobuf import tensorflow_server_pb2

from deeprec_ext import env
from deeprec_ext.errors import RefusedError
from deeprec_ext.layout import CHIEF, Given, Names, names_of, user_tf_config

log = logging.getLogger("deeprec_ext")


def few_ps(count: int, slots: int) -> tuple[str, str] | None:
    """Text and remedy where a script's own cluster has fewer PS than there are slots; None: it has not, or has none."""
    if not 0 < count < slots:
        return None
    return (
        f"the script's cluster has {count} PS and the job {slots} slots: the others stay empty, and more than {count} PS are "
        "of no use",
        "take as many as TF_CONFIG has, or --ps_hosts={ps_hosts}",
    )


class Calling:
    """Args:
    role, index: of this trainer, as the AIMaster counts.
    """

    def __init__(self, role: str, index: int) -> None:
        self._role, self._index = role, index
        self._config = user_tf_config(role, index, env.slots(), env.layout() or CHIEF)
        self._lock = threading.Lock()
        self._server: Names | None = None
        self.made: tuple[str, int] | None = None
        """Job and task as which the script has made its server."""

    def names(self) -> Names:
        """As far as the script has said by now."""
        with self._lock:
            return self._server or self._from_environment()

    def server(self, definition: tensorflow_server_pb2.ServerDef) -> Names:
        """The script makes its server. Raises RefusedError where that is another process."""
        cluster = {job.name: dict(job.tasks) for job in definition.cluster.job}
        names = self._of(Given(cluster, definition.job_name, definition.task_index))
        with self._lock:
            self._server, self.made = names, (definition.job_name, definition.task_index)
        log.info(
            "the script calls this process '%s' %d: what it places there runs here", definition.job_name,
            definition.task_index,
        )  # fmt: skip
        return names

    @property
    def given(self) -> frozenset[str]:
        """Names of the jobs in the TF_CONFIG that it was given."""
        return frozenset(self._config["cluster"])

    def _from_environment(self) -> Names:
        try:
            given = Given.of_config(json.loads(os.environ.get("TF_CONFIG") or "{}"))
            return self._of(given)
        except (KeyError, TypeError, ValueError, AttributeError):  # taken away, perhaps to evaluate on the spot
            return names_of(self._config, self._role, self._index)
        except RefusedError as error:
            log.warning("TF_CONFIG has been changed, and is not followed: %s", error)
            return names_of(self._config, self._role, self._index)

    def _of(self, given: Given) -> Names:
        return names_of(self._config, self._role, self._index, given)
