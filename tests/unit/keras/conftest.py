"""Keras as it is in a trainer of an elastic job, on a cluster in this process."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import pytest
import tensorflow as tf

from deeprec_ext.keras import entry
from deeprec_ext.tf_private import keras_classes
from tests.unit.elastic.cluster import FakeHost, LocalCluster
from tests.unit.keras import job, models

Model = tf.keras.Model


@pytest.fixture(autouse=True)
def _without_xla(monkeypatch):
    """Keras 3 compiles its steps by itself, and so rounds otherwise; under us nothing is."""
    if models.KERAS == 3:
        monkeypatch.setattr(
            importlib.import_module("keras.src.trainers.trainer"), "model_supports_jit", lambda model: False
        )


@pytest.fixture
def cluster():
    return LocalCluster(2)


@pytest.fixture
def host(cluster):
    return FakeHost(cluster, cluster.view(0, 1, 0, 1))


@pytest.fixture
def reported():
    """What the AIMaster is told of evaluations."""
    return []


@pytest.fixture
def elastic(host, reported):
    """Makes it so, until the test ends, and gives the process's door."""
    doors, undo = [], []
    originals = {
        name: getattr(Model, name)
        for name in (*keras_classes.MAKES.values(), "fit", "evaluate", *entry.SAVES, *entry.LOADS)
    }

    def install(chief=True):
        doors.append(models.door_of(host, chief=chief))
        doors[-1].trainer = job.trainer(host, reported, chief)
        undo.append(entry.patch(SimpleNamespace(Model=Model), doors[-1], doors[-1].trainer))
        return doors[-1]

    yield install
    for one in reversed(undo):
        one()
    for name, method in originals.items():
        setattr(Model, name, method)
    for door in doors:
        door.close()
