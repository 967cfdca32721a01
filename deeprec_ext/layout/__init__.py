"""How a script calls the processes of its cluster: what its TF_CONFIG says, and what its devices mean.

The job itself has a chief, workers and PS, whatever the script calls them. Public scripts know the chief by three names:
`chief`, `master`, or `worker` 0. This folder knows neither side of the project and no TensorFlow.
"""

from deeprec_ext.layout.choice import CHIEF, LAYOUTS, MASTER, OTHER_NAMES, WORKERS, Choice, choose, layout_called
from deeprec_ext.layout.cluster import filled, user_tf_config
from deeprec_ext.layout.names import Given, Names, names_of
from deeprec_ext.layout.script import Facts, facts_of_command, job_label, script_name

__all__ = [
    "CHIEF",
    "LAYOUTS",
    "MASTER",
    "OTHER_NAMES",
    "WORKERS",
    "Choice",
    "Facts",
    "Given",
    "Names",
    "choose",
    "facts_of_command",
    "filled",
    "job_label",
    "layout_called",
    "names_of",
    "script_name",
    "user_tf_config",
]
