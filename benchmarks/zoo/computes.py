"""Adds to the runs of the zoo what their models compute, where a run is older than that it was kept: read off the same graphs.

    python -m benchmarks.zoo.computes                   # benchmarks/zoo/runs.jsonl; a minute

Nothing is run: each model is built as the script builds it. A run that has it already stays as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf

from benchmarks.zoo.cases import Case
from benchmarks.zoo.run import FILE, read
from benchmarks.zoo.train import input_fn, model_fn
from deeprec_ext import wholefiles
from deeprec_ext.graph.describing import computes
from deeprec_ext.graph.index import GraphIndex
from deeprec_ext.graph.training import updates
from deeprec_ext.graph.writes import variables_on_ps

v1 = tf.compat.v1


def of_case(case: Case) -> list[str]:
    size = argparse.Namespace(**vars(case))
    with tf.Graph().as_default() as graph, v1.device(v1.train.replica_device_setter(1)):
        v1.train.create_global_step()
        features, labels = v1.data.make_one_shot_iterator(input_fn(size, 0)()).get_next()
        model_fn(features, labels, "train", {"size": size})
    index = GraphIndex(graph.as_graph_def())
    return computes(graph, index, index.upstream(updates(index, variables_on_ps(index))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, default=FILE)
    file = parser.parse_args().file
    lines = read(file)
    for line in lines:
        if not line["job"].get("computes"):
            line["job"]["computes"] = of_case(Case(**{**line["case"], "hidden": tuple(line["case"]["hidden"])}))
            print(line["case"]["name"], len(line["job"]["computes"]), flush=True)
    wholefiles.write(file, "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
