"""Where a process may not train by itself, Keras has its word first: it may refuse what it is given."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("tensorflow")
from deeprec_ext.keras import keras2
from deeprec_ext.keras.leased.fitting import Fitting


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"x": np.ones((8, 2)), "y": np.ones(8), "epochs": 0}, "how its records would be divided is not known"),
        ({"x": np.ones((8, 2)), "y": np.ones(7)}, "it is neither arrays of as many rows each"),
        ({"x": iter(()), "y": None}, "it is neither arrays of as many rows each"),
    ],
    ids=["epochs", "lengths", "generator"],
)
@pytest.mark.parametrize("raises", [False, True])
def test_keras_is_asked_and_what_it_would_train_is_known_to_be_alone(given, why, raises):
    seen = []

    def fit(model, x=None, y=None, batch_size=None, epochs=1, callbacks=None, validation_split=0.0, validation_data=None,
            shuffle=True, class_weight=None, sample_weight=None, initial_epoch=0, steps_per_epoch=None):  # fmt: skip
        seen.append(fitting.alone)
        if raises:
            raise ValueError("Keras says so")
        return "history"

    milestones = SimpleNamespace(begins=lambda: None, ends=lambda left: None)
    home = SimpleNamespace(chief=False, asked_to_train=False)
    model = SimpleNamespace(generation=keras2)
    fitting = Fitting(home, model, milestones, alone=False)
    if raises:
        with pytest.raises(ValueError, match="Keras says so"):
            fitting.fit(fit, SimpleNamespace(built=False), (), dict(given))
    else:
        assert fitting.fit(fit, SimpleNamespace(built=False), (), dict(given)) == "history"
    assert len(seen) == 1 and seen[0].startswith(why) and fitting.alone == ""
