"""`python -m deeprec_ext.backup`: what it prints, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from deeprec_ext.backup.__main__ import main
from tests.unit.backup.made import Backup


@pytest.fixture
def backup(tmp_path):
    made = Backup(tmp_path / "backup")
    made.write(base=True)
    made.write(changed=["u"])
    made.write(base=True)
    return made


def ask(capsys, *words):
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_list_shows_bases_and_deltas_newest_first(backup, capsys):
    code, out, _ = ask(capsys, "list", backup.path, "--json")
    values = json.loads(out)
    assert code == 0 and values["newest"] == 3
    assert [(one["cut"], one["kind"], one["step"]) for one in values["cuts"]] == [
        (3, "base", 25), (2, "delta", 20), (1, "base", 15),
    ]  # fmt: skip
    assert "newest consistent cut" in ask(capsys, "list", backup.path)[1]


@pytest.mark.parametrize("harm", ["flip", "tear", "remove"])
def test_verify_names_what_is_damaged_and_the_newest_cut_that_is_not(backup, capsys, harm):
    assert ask(capsys, "verify", backup.path)[0] == 0
    name = backup.manifests[2].cut.files[1].name
    {"flip": backup.flip, "tear": backup.tear, "remove": backup.place.remove}[harm](name)
    code, out, _ = ask(capsys, "verify", backup.path, "--json")
    values = json.loads(out)
    assert code == 1 and (values["newest"], values["consistent"]) == (2, [2, 1])
    assert len(values["damaged"]) == 1
    assert {"flip": "flipped", "tear": "torn", "remove": "missing"}[harm] in values["damaged"][0]
    assert name in values["damaged"][0]


@pytest.mark.parametrize("moment", ["names", "read", "reading"])
def test_cuts_that_the_job_removes_while_they_are_verified_are_not_damaged(backup, capsys, monkeypatch, moment):
    """A job that goes on removes old cuts, manifests first: between any two calls of whoever reads."""
    first, second, _ = backup.manifests
    kind = type(backup.place)
    call, names = getattr(kind, moment), backup.place.names()

    def removing(place, *words):
        monkeypatch.setattr(kind, moment, call)
        result = call(place, *words) if moment == "names" else None
        for name in (second.name, first.name, *first.files(), *second.files()):
            if name in backup.place.names():
                backup.place.remove(name)
        return call(place, *words) if result is None else result

    monkeypatch.setattr(kind, moment, removing)
    code, out, _ = ask(capsys, "verify", backup.path, "--json")
    values = json.loads(out)
    assert (code, values["damaged"], values["consistent"]) == (0, [], [3])
    assert len(backup.place.names()) < len(names)


@pytest.fixture
def busy(backup, monkeypatch):
    """A job that goes on: while a cut is being exported, so often as `left` says, a newer one is sealed and it is removed."""
    exporting = pytest.importorskip("deeprec_ext.backup.export")
    work, backup.left = exporting.export, 1

    def removing(place, manifest, prefix):
        if backup.left:
            backup.left -= 1
            gone = [one for one in backup.manifests if one.name in backup.place.names()]
            backup.write(base=True, remove=[name for one in gone for name in (one.name, *one.files())])
        return work(place, manifest, prefix)

    monkeypatch.setattr(exporting, "export", removing)
    return backup


@pytest.mark.parametrize("action", ["export", "restore"])
def test_a_cut_that_the_job_removes_while_it_is_exported_is_followed_by_a_newer_one(busy, capsys, tmp_path, action):
    code, out, err = ask(capsys, action, busy.path, tmp_path / "x" / "model.ckpt-1", "--json")
    assert code == 0 and (json.loads(out)["cut"], json.loads(out)["step"]) == (4, 30)
    assert "cut 3 was removed by its job" in err and "a newer one is taken" in err


def test_a_cut_that_was_asked_for_and_is_removed_meanwhile_is_not_replaced(busy, capsys, tmp_path):
    code, _, err = ask(capsys, "export", busy.path, tmp_path / "m", "--cut", 3)
    assert code == 1 and "cut 3 was removed by its job" in err and err.count("\n") == 1
    assert not list(tmp_path.glob("m*"))


def test_a_job_that_removes_every_cut_before_it_is_read_is_an_error_in_the_end(busy, capsys, tmp_path):
    busy.left = 100
    code, _, err = ask(capsys, "export", busy.path, tmp_path / "m")
    assert code == 1 and busy.left == 95 and err.count("a newer one is taken") == 4


def test_a_flipped_value_names_the_variable(backup, capsys):
    backup.flip(backup.manifests[2].cut.files[0].name, at=0.4)
    assert "block of" in ask(capsys, "verify", backup.path)[1]


def test_a_torn_manifest_does_not_hide_the_other_cuts(backup, capsys):
    name = backup.manifests[-1].name
    backup.tear(name)
    code, out, _ = ask(capsys, "verify", backup.path, "--json")
    assert code == 1 and json.loads(out)["newest"] == 2 and name in out


def test_export_uses_the_newest_cut_whose_bytes_are_sound_and_says_so(backup, capsys, tmp_path):
    backup.flip(backup.manifests[2].cut.files[0].name)
    code, out, err = ask(capsys, "export", backup.path, tmp_path / "x" / "model.ckpt-1", "--dry-run", "--json")
    assert code == 0 and json.loads(out)["cut"] == 2 and "flipped" in err
    assert not (tmp_path / "x").exists()
    code, out, _ = ask(capsys, "export", backup.path, tmp_path / "x" / "model.ckpt-1", "--json")
    assert code == 0 and json.loads(out)["step"] == 20


def test_a_cut_that_was_asked_for_and_is_damaged_is_not_replaced_by_another(backup, capsys, tmp_path):
    name = backup.manifests[2].cut.files[0].name
    backup.flip(name)
    code, _, err = ask(capsys, "export", backup.path, tmp_path / "m", "--cut", 3)
    assert code == 1 and name in err and err.count("\n") == 1
    assert ask(capsys, "export", backup.path, tmp_path / "m", "--cut", 9)[0] == 2


def test_when_nothing_is_consistent_the_damage_is_named(backup, capsys, tmp_path):
    for made in backup.manifests:
        backup.place.remove(made.base.files[0].name)
    code, _, err = ask(capsys, "restore", backup.path, tmp_path / "model")
    assert code == 1 and "no consistent cut" in err and "missing" in err and err.count("\n") == 1


def test_not_a_backup_directory_and_another_version_are_bad_usage(backup, capsys, tmp_path):
    (tmp_path / "empty").mkdir()
    for path, part in ((tmp_path / "empty", "not a backup directory"), (tmp_path / "none", "no such directory")):
        code, _, err = ask(capsys, "list", path)
        assert code == 2 and part in err and err.count("\n") == 1
    backup.with_version(7)
    code, _, err = ask(capsys, "verify", backup.path)
    assert code == 2 and "version 7" in err and "version 1" in err


def test_listing_and_verifying_need_no_tensorflow(backup):
    code = (
        "import sys; from deeprec_ext.backup.__main__ import main; "
        f"a = main(['list', {str(backup.path)!r}]); b = main(['verify', {str(backup.path)!r}]); "
        "sys.exit(a or b or 'tensorflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
