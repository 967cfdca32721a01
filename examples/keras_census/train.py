"""Wide & Deep on the UCI Adult census data in plain Keras: does a person earn more than 50 000 dollars a year?

It knows nothing of DeepRec Extension:

    python train.py --data DIR                                          # stock Keras, one process
    deeprec-ext run --ps 2 --workers 2 -- python train.py --data DIR    # elastic

DIR holds `adult.data` and `adult.test`. Without it the records are made up, with a signal that can be learnt, and written
to a file first. Lines of text become features within the `tf.data` pipeline, so in a job they are leased to the trainers.
"""

import argparse
import os
import tempfile
import uuid

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import numpy as np
import tensorflow as tf
from tensorflow import keras
from tensorflow.keras import layers

COLUMNS = ["age", "workclass", "weight", "education", "education_years", "marital", "occupation", "relationship",
           "race", "sex", "gain", "loss", "hours", "country", "income"]  # fmt: skip
CATEGORIES = ["workclass", "education", "marital", "occupation", "relationship", "race", "sex", "country"]
BUCKETS = {  # numbers are categories too: of a bucket
    "age": lambda age: age / 4.0,
    "education_years": lambda years: years,
    "gain": lambda gain: 2.0 * tf.math.log1p(gain),
    "loss": lambda loss: loss / 100.0,
    "hours": lambda hours: hours / 5.0,
}
CROSSES = [
    ("education", "occupation"),
    ("age", "education", "occupation"),
    ("age", "relationship", "occupation"),
    ("marital", "hours", "education_years"),
]
WIDE_ROWS, DEEP_ROWS, BATCH, TEST_RECORDS = 100_000, 20_000, 64, 16384


# ------------------------------------------------------------------------------------------------------------ records


def generate(count, seed):
    """Lines of made-up people, whose income follows from their categories, their age and their hours."""
    random = np.random.default_rng(seed)
    planted = np.random.default_rng(7)  # the same for training and test
    people, score = {"weight": np.zeros(count, int)}, random.logistic(size=count) - 4.0
    for name in CATEGORIES:
        kinds = 40 if name == "country" else 16 if name in ("education", "occupation") else 8
        category = np.minimum(random.geometric(0.25, count) - 1, kinds - 1)
        people[name] = np.char.add(name, category.astype(str))
        score += planted.normal(size=kinds)[category]
    people["age"] = random.integers(17, 90, count)
    people["education_years"] = random.integers(1, 17, count)
    people["gain"] = np.where(random.random(count) < 0.08, random.integers(1, 20000, count), 0)
    people["loss"] = np.where(random.random(count) < 0.05, random.integers(1, 2500, count), 0)
    people["hours"] = random.integers(1, 80, count)
    score += 2 * np.sin(people["age"] / 14) + people["education_years"] / 8 + people["gain"] / 5000
    people["income"] = np.where(score + people["hours"] / 40 > 0, ">50K", "<=50K")
    return [", ".join(map(str, row)) + "\n" for row in zip(*(people[name] for name in COLUMNS))]


def written(directory, count, seed):
    """The path of a file of made-up people. Every process of a job writes the same one; the first wins."""
    path = os.path.join(directory, f"generated-{count}-{seed}.csv")
    if not os.path.exists(path):
        os.makedirs(directory, exist_ok=True)
        draft = f"{path}.{uuid.uuid4().hex}"
        with open(draft, "w") as file:
            file.writelines(generate(count, seed))
        os.replace(draft, path) if not os.path.exists(path) else os.remove(draft)
    return path


def parse(line):
    """Ids of rows for the wide and the deep part, whether it is more than 50 000 dollars, and what the record weighs.

    Both files end with an empty line, and some copies of `adult.test` begin with a remark: these weigh nothing.
    """
    line = tf.strings.regex_replace(line, " ", "")
    complete = tf.strings.regex_full_match(line, "([^,]*,){14}[^,]*")
    defaults = [[0.0] if name in BUCKETS else [""] for name in COLUMNS]
    person = dict(zip(COLUMNS, tf.io.decode_csv(tf.where(complete, line, "," * 14), defaults)))
    for name, bucket in BUCKETS.items():
        person[name] = tf.strings.as_string(tf.cast(bucket(person[name]), tf.int64))
    fields = [tf.strings.join([name, "=", person[name]]) for name in [*CATEGORIES, *BUCKETS]]
    crosses = [tf.strings.join([*names, *(person[name] for name in names)], "&") for names in CROSSES]
    features = {
        "wide": tf.strings.to_hash_bucket_fast(tf.stack([*fields, *crosses]), WIDE_ROWS),
        "deep": tf.strings.to_hash_bucket_fast(tf.stack(fields), DEEP_ROWS),
    }
    more = tf.strings.regex_full_match(person["income"], r">50K\.?")  # adult.test has a dot
    return features, tf.cast(more, tf.float32), tf.cast(complete, tf.float32)


def batches(path):
    """In the file's order, which tells nothing of the people."""
    lines = tf.data.TextLineDataset([path])
    return lines.map(parse, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH).prefetch(tf.data.AUTOTUNE)


# -------------------------------------------------------------------------------------------------------------- model


def make_model():
    """Wide: a weight for each field and crossing. Deep: a network over embeddings of the fields."""
    fields = len(CATEGORIES) + len(BUCKETS)
    weights = fields + len(CROSSES)
    wide = keras.Input(shape=(weights,), dtype="int64", name="wide")
    deep = keras.Input(shape=(fields,), dtype="int64", name="deep")
    linear = layers.Embedding(WIDE_ROWS, 1, embeddings_initializer="zeros", name="weights")(wide)
    linear = layers.Rescaling(weights)(layers.GlobalAveragePooling1D()(linear))  # their sum
    hidden = layers.Flatten()(layers.Embedding(DEEP_ROWS, 8, name="embeddings")(deep))
    for units in (64, 32):
        hidden = layers.Dense(units, activation="relu")(hidden)
    logit = layers.Add()([linear, layers.Dense(1)(hidden)])
    return keras.Model([wide, deep], layers.Activation("sigmoid", name="income")(logit))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="DIR", help="directory with adult.data and adult.test")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500, help="batches of an epoch, where the records are made up")
    parser.add_argument("--seed", type=int, default=1, help="of these records, the same in all processes")
    parser.add_argument(
        "--model-dir", default=os.environ.get("DEEPREC_EXT_WORKDIR"), help="where the trained model goes"
    )
    arguments = parser.parse_args()

    if arguments.data:
        train, test = (os.path.join(arguments.data, name) for name in ("adult.data", "adult.test"))
    else:
        directory = arguments.model_dir or tempfile.mkdtemp(prefix="census-")
        train = written(directory, BATCH * arguments.steps, arguments.seed)
        test = written(directory, TEST_RECORDS, 0)
        print(f"no --data: the records are made up, with a planted signal, in {directory}", flush=True)
    model = make_model()
    # Adagrad touches only the rows of the batch; Adam would rewrite the tables at every step.
    model.compile(
        keras.optimizers.Adagrad(0.05), loss="binary_crossentropy", weighted_metrics=[keras.metrics.AUC(name="auc")]
    )
    model.fit(batches(train), validation_data=batches(test), epochs=arguments.epochs, verbose=2)
    results = model.evaluate(batches(test), return_dict=True, verbose=0)
    print("test " + ", ".join(f"{name} {value:.4f}" for name, value in sorted(results.items())), flush=True)
    if arguments.model_dir:
        os.makedirs(arguments.model_dir, exist_ok=True)
        model.save(os.path.join(arguments.model_dir, "census.keras"))


if __name__ == "__main__":
    main()
