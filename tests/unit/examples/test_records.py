"""How the examples read and make their records."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
FIRST = (
    "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, "
    "United-States, <=50K"
)
SECOND = "52, ?, 209642, HS-grad, 9, Married-civ-spouse, Exec-managerial, Husband, White, Male, 0, 0, 45, United-States, >50K"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / name / "train.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def census() -> ModuleType:
    return script("census_wide_deep")


@pytest.fixture(scope="module")
def criteo() -> ModuleType:
    return script("deepfm_criteo")


@pytest.mark.parametrize("end", ["", "."], ids=["adult.data", "adult.test"])
def test_both_files_of_the_census_data_are_read(census, tmp_path, end):
    path = tmp_path / "adult"
    path.write_text(f"|1x3 Cross validator\n{FIRST}{end}\n{SECOND}{end}\n\n")
    columns, labels = census.read(path)
    assert labels.tolist() == [0, 1]
    assert columns["age"].tolist() == ["39", "52"]
    assert columns["country"].tolist() == ["United-States", "United-States"]


def test_an_unknown_category_gets_a_row_of_its_own(census):
    columns, _ = census.generate(50, seed=1)
    vocabularies = {name: np.unique(columns[name]) for name in census.CATEGORIES}
    columns["workclass"] = np.array(["never seen", *columns["workclass"][1:]])
    fields, crossings = census.encode(columns, vocabularies)
    assert fields[0, 0] == len(vocabularies["workclass"]) > fields[1:, 0].max()
    assert (crossings >= 0).all() and (crossings < [rows for _, rows in census.CROSSES]).all()


def test_ids_of_the_census_stay_inside_their_tables(census, tmp_path):
    path, test, vocabularies, rows = census.load(None, str(tmp_path))
    columns, train_labels = census.read(path)
    for fields, _, labels in ((*census.encode(columns, vocabularies), train_labels), test):
        assert fields.shape == (len(labels), len(rows))
        assert (fields >= 0).all() and (fields < rows).all()
        assert 0.1 < labels.mean() < 0.9


def test_generated_people_survive_being_written_and_read(census, tmp_path):
    columns, labels = census.generate(200, seed=1)
    path = str(tmp_path / "new" / "people.data")
    census.write(path, columns, labels)
    census.write(path, columns, labels)  # a second process
    again, same = census.read(path)
    assert (same == labels).all() and (again["age"] == columns["age"].astype(str)).all()
    assert [one.name for one in (tmp_path / "new").iterdir()] == ["people.data"]


def test_generated_people_differ_between_training_and_test_only_by_chance(census):
    (columns, labels), (again, same) = census.generate(1000, seed=1), census.generate(1000, seed=1)
    assert (labels == same).all() and (columns["age"] == again["age"]).all()
    assert (census.generate(1000, seed=2)[0]["age"] != columns["age"]).any()


def test_a_criteo_line_may_have_empty_columns(criteo):
    full = ["1", *map(str, range(13)), *(f"{number:08x}" for number in range(26))]
    empty = ["0", *[""] * 39]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features, labels = session.run(criteo.parse(["\t".join(full), "\t".join(empty)], 100))
    assert labels.tolist() == [1, 0]
    np.testing.assert_allclose(features["integers"][0], np.log1p(np.arange(13)), rtol=1e-6)
    assert not features["integers"][1].any()
    assert features["ids"].shape == (2, 26) and (features["ids"] >= 0).all() and (features["ids"] < 100).all()


def test_a_negative_integer_counts_as_nothing(criteo):
    line = "\t".join(["1", "-3", *["0"] * 12, *[""] * 26])
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        features, _ = session.run(criteo.parse([line], 100))
    assert features["integers"][0, 0] == 0


def test_generated_clicks_are_reproducible_and_skewed(criteo):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        number = tf.constant(3, tf.int64)
        first, again, other = session.run([criteo.generate(number, 4096, 1000, seed)[0]["ids"] for seed in (1, 1, 2)])
    assert (first == again).all() and (first != other).any()
    assert first.min() >= 0 and first.max() < 1000
    assert np.bincount(first[:, 0]).max() > 4096 / 20  # far more often than 1 in 1000


def test_training_and_test_of_criteo_share_no_record(criteo, tmp_path):
    path = tmp_path / "day.tsv"
    path.write_text("".join("\t".join(["0", str(number), *["0"] * 12, *["a"] * 26]) + "\n" for number in range(100)))
    arguments = type("Arguments", (), {"data": [str(path)], "batch": 10, "rows_per_table": 10, "records": 0})

    def records(dataset, batches):
        found = [features["integers"][:, 0] for features, _ in dataset.take(batches).as_numpy_iterator()]
        return {round(float(np.expm1(value))) for value in np.concatenate(found)}

    test = records(criteo.batches(arguments, test=True)(), 100)
    train = records(criteo.batches(arguments, seed=1)(), 27)
    assert test == set(range(9, 100, 10))
    assert train == set(range(100)) - test
