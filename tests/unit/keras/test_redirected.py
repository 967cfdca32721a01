"""What a worker's script writes is its own, and it finds it again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from deeprec_ext.keras.files import redirected
from deeprec_ext.keras.files.redirected import Redirected


@pytest.fixture
def of(tmp_path, monkeypatch):
    """(where the script writes, the worker's directory); tests have temporary files elsewhere."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(redirected.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    script = tmp_path / "script"
    script.mkdir()
    fitted = [True]
    undo = Redirected(tmp_path / "own", lambda: fitted[0]).begin()
    yield script, tmp_path / "own", fitted
    undo()


def own_of(place: Path, path: Path) -> Path:
    return place / str(path).lstrip("/")


def test_what_is_written_is_below_the_workers_directory_and_read_there(of, caplog, monkeypatch):
    script, own, _ = of
    caplog.set_level("INFO", logger="deeprec_ext")
    with open(script / "text.txt", "w") as file:
        file.write("worker")
    (script / "path.txt").write_text("worker")
    np.save(script / "array.npy", np.arange(3))
    monkeypatch.chdir(script)
    with open("relative.txt", "wb") as file:
        file.write(b"worker")
    assert not list(script.iterdir())
    assert sorted(one.name for one in own_of(own, script).iterdir()) == [
        "array.npy",
        "path.txt",
        "relative.txt",
        "text.txt",
    ]
    with open(script / "text.txt") as file:
        assert file.read() == (script / "path.txt").read_text() == "worker"
    assert np.load(script / "array.npy").tolist() == [0, 1, 2]
    assert f"{script}/text.txt is written to {own}" in caplog.text


def test_what_is_added_to_begins_with_what_there_is(of):
    script, _, fitted = of
    fitted[0] = False
    (script / "log.txt").write_text("one\n")
    fitted[0] = True
    for line in ("two\n", "three\n"):
        with open(script / "log.txt", "a") as file:
            file.write(line)
    assert (script / "log.txt").read_text() == "one\ntwo\nthree\n"
    fitted[0] = False
    assert (script / "log.txt").read_text() == "one\n"


def test_it_is_renamed_and_removed_there(of):
    script, own, _ = of
    with open(script / "draft", "w") as file:
        file.write("all of it")
    os.replace(script / "draft", script / "final")
    assert (script / "final").read_text() == "all of it" and not list(script.iterdir())
    os.remove(script / "final")
    assert [one.name for one in own.rglob("*") if one.is_file()] == []
    with pytest.raises(FileNotFoundError):
        (script / "final").read_text()


def test_what_the_worker_has_not_written_it_leaves_to_the_chief(of, caplog):
    """Its clean-up would destroy what the chief has just saved."""
    script, _, fitted = of
    caplog.set_level("INFO", logger="deeprec_ext")
    fitted[0] = False
    (script / "export" / "variables").mkdir(parents=True)
    for name in ("export/saved_model.pb", "export/variables/data", "a.keras", "b.keras", "old.txt"):
        (script / name).write_text("the chief's")
    before = sorted(script.rglob("*"))
    fitted[0] = True
    shutil.rmtree(script / "export")
    os.makedirs(script / "export")
    os.remove(script / "old.txt")
    (script / "old.txt").unlink()
    os.replace(script / "a.keras", script / "b.keras")
    assert shutil.move(script / "a.keras", script / "b.keras") == script / "b.keras"
    os.rmdir(script / "export")
    fitted[0] = False
    assert sorted(script.rglob("*")) == before
    assert f"{script}/old.txt is not removed here" in caplog.text and f"{script}/a.keras is not renamed" in caplog.text


def test_what_nobody_has_cannot_be_renamed(of):
    script, _, _ = of
    with pytest.raises(FileNotFoundError):
        os.rename(script / "none", script / "nowhere")


def test_the_chief_makes_directories_and_renames_files_and_a_worker_waits_for_it(of):
    script, own, fitted = of
    fitted[0] = False
    (script / "draft").write_text("the chief's")
    fitted[0] = True
    chief = threading.Thread(
        target=lambda: (time.sleep(0.3), os.mkdir(script / "plots"), os.rename(script / "draft", script / "final"))
    )
    chief.start()
    os.mkdir(script / "plots")
    assert (script / "plots").is_dir()
    os.rename(script / "draft", script / "final")
    assert (script / "final").read_text() == "the chief's"
    chief.join()
    with open(script / "plots" / "one.png", "wb") as file:
        file.write(b"worker")
    assert not list((script / "plots").iterdir()) and (own_of(own, script) / "plots" / "one.png").exists()
    shutil.rmtree(script / "plots")
    assert (script / "plots").is_dir() and not (own_of(own, script) / "plots" / "one.png").exists()


def test_a_directory_that_the_chief_does_not_make_is_not_made_in_its_way(of, monkeypatch):
    script, own, _ = of
    monkeypatch.setattr(redirected, "WAIT_SECONDS", 0.2)
    (script / "mine").mkdir()
    os.makedirs(script / "mine" / "too", exist_ok=True)
    (script / "mine" / "too" / "figures.json").write_text("the worker's")
    assert not (script / "mine").exists()
    assert (own_of(own, script) / "mine" / "too" / "figures.json").read_text() == "the worker's"
    assert (script / "mine" / "too" / "figures.json").read_text() == "the worker's"


def test_copies_are_the_workers_own(of):
    script, _, fitted = of
    fitted[0] = False
    (script / "there").mkdir()
    (script / "source.txt").write_text("what was there")
    (script / "tree" / "below").mkdir(parents=True)
    (script / "tree" / "below" / "leaf.txt").write_text("leaf")
    before = sorted(script.rglob("*"))
    fitted[0] = True
    with open(script / "written.txt", "w") as file:
        file.write("own")
    assert shutil.copy(script / "source.txt", script / "copy.txt") == script / "copy.txt"
    shutil.copy2(script / "written.txt", script / "there")
    shutil.copyfile(script / "source.txt", script / "file.txt")
    for _ in range(2):
        shutil.copytree(script / "tree", script / "other")
    assert (script / "copy.txt").read_text() == (script / "file.txt").read_text() == "what was there"
    assert (script / "there" / "written.txt").read_text() == "own"
    assert (script / "other" / "below" / "leaf.txt").read_text() == "leaf"
    shutil.move(script / "copy.txt", script / "moved.txt")
    assert (script / "moved.txt").read_text() == "what was there"
    fitted[0] = False
    assert sorted(script.rglob("*")) == before


def test_arguments_may_be_given_by_name(of):
    """As by whoever knows the standard library's names."""
    script, _, fitted = of
    fitted[0] = False
    (script / "source.txt").write_text("what was there")
    (script / "tree").mkdir()
    for now in (False, True):
        fitted[0] = now
        shutil.copy(src=script / "source.txt", dst=script / "copy.txt")
        shutil.copyfile(src=script / "source.txt", dst=script / "file.txt")
        shutil.copytree(src=script / "tree", dst=script / "other", dirs_exist_ok=True)
        os.makedirs(name=script / "tree", exist_ok=True)
        if not now:
            os.mkdir(path=script / "made")
            os.rmdir(path=script / "made")
        os.rename(src=script / "copy.txt", dst=script / "renamed.txt")
        shutil.move(src=script / "renamed.txt", dst=script / "moved.txt")
        os.replace(src=script / "moved.txt", dst=script / "replaced.txt")
        assert (script / "replaced.txt").read_text() == "what was there"
        os.remove(path=script / "replaced.txt")
        shutil.rmtree(path=script / "other")


def test_what_is_moved_to_or_from_a_temporary_place_is_the_workers_own(of, tmp_path):
    script, own, fitted = of
    elsewhere = tmp_path / "temporary"
    fitted[0] = False
    for name in ("metrics.csv", "final.csv", "export.txt"):
        (script / name).write_text("the chief's")
    fitted[0] = True
    (script / "metrics.csv").write_text("worker")
    assert shutil.move(script / "metrics.csv", elsewhere / "archived.csv")
    assert (elsewhere / "archived.csv").read_text() == "worker"
    shutil.move(script / "export.txt", elsewhere / "old.txt")
    (elsewhere / "draft.csv").write_text("worker's draft")
    os.replace(elsewhere / "draft.csv", script / "final.csv")
    assert (script / "final.csv").read_text() == "worker's draft"
    (elsewhere / "tree").mkdir()
    (elsewhere / "tree" / "leaf.txt").write_text("leaf")
    shutil.move(elsewhere / "tree", script / "tree")
    assert (script / "tree" / "leaf.txt").read_text() == "leaf" and (own_of(own, script) / "tree" / "leaf.txt").exists()
    fitted[0] = False
    assert sorted(one.name for one in script.iterdir()) == ["export.txt", "final.csv", "metrics.csv"]
    assert all(one.read_text() == "the chief's" for one in script.iterdir())


def test_a_copy_into_a_directory_is_told_where_it_is(of):
    script, _, fitted = of
    fitted[0] = False
    (script / "there").mkdir()
    (script / "source.txt").write_text("what was there")
    fitted[0] = True
    with open(shutil.copy(script / "source.txt", script / "there")) as file:
        assert file.read() == "what was there"


def test_names_that_no_other_process_has_are_not_waited_for(of, monkeypatch):
    script, _, _ = of
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=script) as made:
        (Path(made) / "file").write_text("nobody else's")
        assert Path(made).is_dir() and os.listdir(made) == ["file"]
    assert not list(script.iterdir())
    monkeypatch.setattr(redirected, "WAIT_SECONDS", 0.5)
    os.makedirs(script / f"of {os.getpid()}" / "a" / "b")
    assert not (script / f"of {os.getpid()}").exists() and time.monotonic() - began < 10


def test_left_alone_is_what_is_no_output_of_the_script(of, tmp_path):
    script, own, fitted = of
    with open(os.devnull, "w") as file:
        file.write("nowhere")
    with open(tmp_path / "temporary" / "one", "w") as file:
        file.write("temporary")
    with tempfile.TemporaryDirectory(dir=tmp_path / "temporary") as made:
        (Path(made) / "inside").mkdir()
    assert [one.name for one in (tmp_path / "temporary").iterdir()] == ["one"]
    other = threading.Thread(target=(script / "thread.txt").write_text, args=("of a library",))
    other.start()
    other.join()
    descriptor = os.open(script / "descriptor", os.O_CREAT | os.O_WRONLY)
    with open(descriptor, "w") as file:
        file.write("its own way")
    fitted[0] = False
    (script / "before.txt").write_text("before fit")
    assert sorted(one.name for one in script.iterdir()) == ["before.txt", "descriptor", "thread.txt"]
    assert not own.exists()


@pytest.mark.parametrize(("text", "aware"), [("print(1)", False), ("os.environ['TF_CONFIG']", True)])
def test_a_script_that_tells_processes_apart_is_left_alone(tmp_path, text, aware):
    script = tmp_path / "script.py"
    script.write_text(
        f"import os, sys\nfrom deeprec_ext.keras.files.redirected import is_aware\nsys.exit(is_aware())\n# {text}\n"
    )
    root = Path(redirected.__file__).parents[3]
    assert (
        subprocess.run([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": str(root)}).returncode == aware
    )


@pytest.fixture
def late(tmp_path):
    """Of a process that comes when others train: its script has not called `fit`."""
    script, fitted = tmp_path / "script", [False]
    script.mkdir()
    (script / "train.csv").write_text("what others read")
    undo = Redirected(tmp_path / "own", lambda: False, lambda: not fitted[0]).begin()
    yield script, fitted
    undo()


def test_who_comes_late_writes_over_nothing_that_is_there(late, tmp_path):
    script, fitted = late
    with open(script / "train.csv", "w") as file:
        file.write("once more")
    assert (script / "train.csv").read_text() == "once more"  # its own
    (script / "draft").write_text("new")
    os.replace(script / "draft", script / "new.csv")
    (script / "too").mkdir()
    (script / "too" / "lock").write_text("")
    os.remove(script / "too" / "lock")
    with open(script / "log.txt", "a") as file:
        file.write("goes on")
    os.replace(shutil.copy(script / "new.csv", script / "other"), script / "train.csv")
    shutil.rmtree(script)
    script.mkdir()
    fitted[0] = True
    assert {one.name for one in script.iterdir()} == {"train.csv", "new.csv", "too", "log.txt"}
    assert (script / "log.txt").read_text() == "goes on" and not list((script / "too").iterdir())
    assert (script / "train.csv").read_text() == "what others read"
    assert (script / "new.csv").read_text() == "new" and (script / "too").is_dir()
    (script / "train.csv").write_text("after fit")  # as the chief does
    assert (script / "train.csv").read_text() == "after fit"


def test_records_and_text_of_arrays_are_the_workers_own(of):
    script, own, _ = of
    np.savetxt(str(script / "array.csv"), np.eye(2))
    np.savetxt(script / "array.txt", np.eye(2))
    with tf.io.TFRecordWriter(str(script / "records")) as writer:
        writer.write(b"record")
    assert not list(script.iterdir())
    assert {one.name for one in own_of(own, script).iterdir()} == {"array.csv", "array.txt", "records"}
    assert np.loadtxt(own_of(own, script) / "array.csv").tolist() == np.eye(2).tolist()
