"""A model's module is found by its name, and what is wrong with it is said in a line each."""

from __future__ import annotations

import importlib.util
import sys

import pytest

from deeprec_ext.errors import UsageError
from deeprec_ext.modeldef import aliases
from deeprec_ext.modeldef.definition import Definition, Names, bound, load


def refused(*arguments, **words) -> str:
    with pytest.raises(UsageError) as error:
        load(*arguments, **words)
    return str(error.value)


def test_a_function_of_a_module_of_a_package(written, zoo):
    name = written()
    found = load(f"{name}.custom_model", zoo=zoo)
    assert found.module == name
    assert found.missing("train") == found.missing("evaluate") == found.missing("predict") == []
    assert found.model().count_params() == 2


def test_a_module_alone_has_a_function_by_one_of_the_usual_names(written, zoo):
    assert load(written(), zoo=zoo).model().count_params() == 2


def test_a_module_without_one_is_told_to_be_named_with_it(written, zoo):
    name = written("def mine(): ...")
    assert f"--model-def {name}.my_model" in refused(name, zoo=zoo)


def test_the_package_may_be_named_by_the_directory_above_as_in_imports_of_a_model_zoo(written, zoo):
    name = written()
    assert load(f"zoo.{name}.custom_model", zoo=zoo).module == f"zoo.{name}"


def test_no_such_module(written, zoo):
    assert "there is no module 'nowhere.at_all'" in refused("nowhere.at_all.custom_model", zoo=zoo)


def test_no_such_function(written, zoo):
    name = written()
    assert f"{name} has no 'other'" in refused(f"{name}.other", zoo=zoo)


def test_what_a_module_imports_and_nobody_has(written, zoo):
    name = written("import recordio_of_nobody")
    assert f"--model-def {name}.custom_model needs 'recordio_of_nobody', which is not there" in refused(
        f"{name}.custom_model", zoo=zoo
    )


def test_a_module_that_raises(written, zoo):
    name = written("1 / 0")
    assert f"{name}: importing it raised ZeroDivisionError" in refused(name, zoo=zoo)


@pytest.mark.parametrize("text", ["", "a..b", "path/to/file.py", "a-b.c"])
def test_what_is_no_name_of_a_module(text):
    assert "write it as package.module.function" in refused(text)


def test_each_part_that_is_missing_has_a_line_that_says_what_to_write(written, zoo):
    found = load(written("def custom_model(): ..."), zoo=zoo)
    assert ["feed" in line for line in found.missing("predict")] == [True]
    assert len(found.missing("evaluate")) == 2
    told = found.missing_of_model(object(), "train")
    assert [f"write `def {name}(" in line for name, line in zip(("loss", "optimizer"), told)] == [True, True]
    assert found.missing_of_model(object(), "predict") == []


def test_a_part_that_is_no_function_is_told(written, zoo):
    found = load(written("def custom_model(): ...\nfeed = 3"), zoo=zoo)
    assert [line for line in found.missing("predict") if "feed is no function, but int" in line]


def test_parts_may_have_other_names(written, zoo):
    text = "def custom_model(): ...\ndef dfeed(dataset, mode, _): return mode"
    found = load(written(text), Names(feed="dfeed"), zoo)
    assert bound(found.feed, "training", None)(None) == "training"
    lacking = load(written(text), Names(feed="other"), zoo)
    assert any("has no 'other', which --feed names" in line for line in lacking.missing("predict"))


def test_an_older_module_calls_its_feed_dataset_fn(written, zoo):
    found = load(written("def custom_model(): ...\ndef dataset_fn(dataset, mode): return (dataset, mode)"), zoo=zoo)
    assert bound(found.feed, "evaluation", "metadata")("records") == ("records", "evaluation")


@pytest.mark.parametrize(
    ("feed", "count"),
    [(lambda d: (d,), 1), (lambda d, m: (d, m), 2), (lambda d, m, x: (d, m, x), 3), (lambda *a: a, 3)],
)
def test_feed_is_called_with_as_many_arguments_as_it_takes(feed, count):
    assert bound(feed, "m", "x")("d") == ("d", "m", "x")[:count]


def test_modules_of_elasticdl_import_what_stands_here_under_its_names(written, zoo):
    assert importlib.util.find_spec("elasticdl") is None or aliases.install()
    name = written(
        """
        from elasticdl.python.common.constants import Mode
        from elasticdl.python.common.log_utils import default_logger as logger
        from elasticdl.python.elasticdl.callbacks import LearningRateScheduler
        from elasticdl.python.elasticdl.feature_column import feature_column
        from elasticdl.python.worker.prediction_outputs_processor import BasePredictionOutputsProcessor
        from elasticdl.python.data.odps_io import ODPSWriter, is_odps_configured
        from elasticdl.python.data.reader.recordio_reader import RecordIODataReader

        def custom_model():
            return (Mode.TRAINING, is_odps_configured(), feature_column.embedding_column, LearningRateScheduler)

        def feed(): ODPSWriter("project")
        """
    )
    found = load(name, zoo=zoo)
    mode, configured, column, _ = found.model()
    assert (mode, configured, column.__name__) == ("training", False, "embedding_column")
    with pytest.raises(UsageError, match="ODPSWriter is ElasticDL's"):
        found.feed()


def test_what_elasticdl_alone_has_is_missing_by_name(written, zoo):
    name = written("from elasticdl.python.elasticdl.layers.embedding import Embedding")
    assert "needs 'elasticdl.python.elasticdl.layers'" in refused(name, zoo=zoo)


def test_nothing_is_under_those_names_where_no_module_was_loaded():
    assert Definition("m", lambda: None).loss is None
    assert not any(name.startswith("elasticdl.") for name in sys.modules)
