"""A captured step in a graph of its own, as often as it is wanted, on variables with the values of the eager ones."""

from __future__ import annotations

import tensorflow as tf

from deeprec_ext.tf_private.eager import raw_value

v1 = tf.compat.v1


class Imported:
    """Args: captured: a step of one tensor. index: of its graph as it is to be run; devices are left out."""

    def __init__(self, captured, index):
        self._captured, self.graph = captured, tf.Graph()
        for node in index.nodes.values():
            node.device = ""
        with self.graph.as_default():
            self._made = {
                inside: v1.Variable(raw_value(one), use_resource=True) for inside, one in captured.variables.items()
            }
        self._taken = {name: one.handle for name, one in self._made.items() if index.consumers(name)}

    def add(self, definition, name=""):
        """(what one run of it fetches, its outputs first; placeholder of what it is given)"""
        [(feed, _, _)] = self._captured.feeds
        wanted = [*self._captured.outputs, *self._captured.targets, feed + ":0"]
        with self.graph.as_default():
            *fetches, given = v1.import_graph_def(definition, input_map=self._taken, return_elements=wanted, name=name)
        return fetches, given

    def initialise(self, session):
        session.run([one.initializer for one in self._made.values()])

    def values(self, session):
        """Of all variables, by their names."""
        return {self._captured.variables[name].name: session.run(one) for name, one in self._made.items()}
