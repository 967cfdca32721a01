"""Decisions about cuts, over generated histories."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeprec_ext.backup import chains, manifest, snapshots
from deeprec_ext.backup.chains import CommittedSnapshot, next_cut, removable
from deeprec_ext.backup.errors import DamagedError, WrongBackupError
from tests.unit.backup.made import Backup


def cut(number, base, size=10, job="job"):
    return CommittedSnapshot(str(number), number, str(base), size, (f"f{number}a", f"f{number}b"), job)


def test_a_new_base_when_the_deltas_reach_its_size():
    assert next_cut([], marks_on=True).base
    assert not next_cut([cut(1, 1, 100)], marks_on=True).base
    assert not next_cut([cut(1, 1, 100), cut(2, 1, 60), cut(3, 1, 39)], marks_on=True).base
    assert next_cut([cut(1, 1, 100), cut(2, 1, 60), cut(3, 1, 40)], marks_on=True).base


def test_a_new_base_without_marks_after_a_change_and_when_the_chain_is_long():
    chain = [cut(1, 1, 100), cut(2, 1, 1)]
    assert next_cut(chain, marks_on=False) == chains.Next(True, "rows are not marked")
    assert next_cut(chain, marks_on=True, changed="restored") == chains.Next(True, "restored")
    assert next_cut(chain, marks_on=True, chain_max=2).base


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(["job", "other"])), max_size=30), st.integers(0, 4))
def test_retention_keeps_whole_chains_and_never_touches_another_jobs(history, keep):
    cuts, base = [], {}
    for number, (new, job) in enumerate(history, 1):
        if new or job not in base:
            base[job] = number
        cuts.append(cut(number, base[job], job=job))
    names = set(removable(cuts, "job", keep))
    own_bases = sorted({one.base for one in cuts if one.job_id == "job"}, key=int)
    kept = set(own_bases[-max(1, keep) :])
    for one in cuts:
        mine = {*one.files, manifest.manifest_name(one.id)}
        assert mine.isdisjoint(names) if one.job_id == "other" or one.base in kept else mine <= names


def test_manifests_go_before_their_files_and_dropped_cuts_go_too():
    names = removable([cut(1, 1), cut(2, 2)], "job", 1, dropped=["3"], slots=2)
    assert names == [
        "cut-1.manifest",
        "f1a",
        "f1b",
        "cut-3.manifest",
        "cut-3.manifest.tmp",
        "cut-3-slot0000.drx",
        "cut-3-slot0001.drx",
    ]


def test_the_newest_consistent_cut_skips_those_that_need_a_damaged_file(tmp_path):
    backup = Backup(tmp_path)
    one, two, three, four = (backup.write(base=base, changed=["u"]) for base in (True, False, False, True))
    files = {made.number: made.cut.files for made in (one, two, three, four)}

    def newest(*damaged, **conditions):
        found = chains.newest_consistent(backup.manifests, dict.fromkeys(damaged, "bad"), **conditions)
        return found.number if found else None

    assert newest() == 4
    assert newest(files[4][0].name) == 3
    assert newest(files[4][0].name, files[2][1].name) == 1
    assert newest(files[4][0].name, files[1][1].name) is None
    assert newest(before=4) == 3 and newest(job_id="another") is None and newest(layouts=["x"]) is None


def test_a_slot_written_whole_needs_nothing_earlier(tmp_path):
    backup = Backup(tmp_path)
    backup.write(base=True)
    made = backup.write(changed=["u"])
    whole = dataclasses.replace(made.cut.files[0], whole=True)
    made = dataclasses.replace(
        made, chain=(made.base, dataclasses.replace(made.cut, files=(whole, made.cut.files[1])))
    )  # fmt: skip
    assert [len(made.needed()[slot]) for slot in (0, 1)] == [1, 2]
    assert chains.newest_consistent([made], {made.base.files[0].name: "bad"}) == made


def test_a_manifest_is_read_back_as_it_was_and_says_when_it_was_flipped(tmp_path):
    made = Backup(tmp_path).write(base=True)
    text = manifest.dumps(made)
    assert manifest.loads(text, "m") == made
    with pytest.raises(DamagedError, match="m is flipped"):
        manifest.loads(text.replace('"step":15', '"step":16'), "m")
    with pytest.raises(DamagedError, match="m is torn"):
        manifest.loads(text[:-9], "m")
    with pytest.raises(WrongBackupError, match="version 2 of the format, this deeprec-ext reads version 1"):
        manifest.loads(text.replace('"version":1', '"version":2'), "m")
    with pytest.raises(WrongBackupError, match="no manifest"):
        manifest.loads("[]", "m")


def test_a_file_name_that_leaves_the_directory_is_refused(tmp_path):
    made = Backup(tmp_path).write(base=True)
    values = json.loads(manifest.dumps(made))
    del values["crc32"]
    values["chain"][0]["files"][0]["name"] = "../../secret"
    values["crc32"] = manifest._checksum(values)
    with pytest.raises(DamagedError, match="secret"):
        manifest.loads(json.dumps(values), "m")


def test_cuts_that_were_never_sealed_are_found_by_their_files(tmp_path):
    backup = Backup(tmp_path)
    backup.write(base=True)
    (tmp_path / "cut-00000009-2-job-slot0003.drx").write_bytes(b"half")
    (tmp_path / "cut-00000008-2-other-slot0003.drx").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("not ours")
    found = snapshots.look(backup.place)
    assert found.uncommitted == ["00000008-2-other", "00000009-2-job"] and len(found.manifests) == 1
    assert json.loads(snapshots.answer(found, "", "", "job", 0))["unsealed"] == ["00000009-2-job"]


def test_a_search_looks_at_the_newest_manifests_below_a_number_only(tmp_path):
    backup = Backup(tmp_path)
    for _ in range(5):
        backup.write(base=True)
    assert [one.number for one in snapshots.look(backup.place, most=2).manifests] == [5, 4]
    assert [one.number for one in snapshots.look(backup.place, most=2, before=4).manifests] == [3, 2]
