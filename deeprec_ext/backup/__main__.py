"""`python -m deeprec_ext.backup list|verify|restore|export DIR`: what `deeprec-ext backup` runs.

Exit codes: 0 done; 1 something is damaged, or no snapshot can be used; 2 bad usage, or not a backup of this model and version.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from deeprec_ext.backup import chains, process_cuts, snapshots
from deeprec_ext.backup.errors import DamagedError, NoCutError, RemovedError, WrongBackupError
from deeprec_ext.backup.files import directory
from deeprec_ext.backup.manifest import KEPT_POSITION, Manifest
from deeprec_ext.bounds import whole
from deeprec_ext.errors import DeepRecError, UsageError
from deeprec_ext.units import few, format_bytes

T = TypeVar("T")

TRIES = 5
"""So many snapshots in a row may be removed by their job while they are read, each of them the newest when it was chosen."""


def add_commands(commands: Any) -> None:
    """The sub-commands and their flags."""
    one = commands.add_parser("list", help="the cuts in a backup directory, newest first")
    _common(one)
    one = commands.add_parser("verify", help="read every byte; name what is torn, flipped or missing")
    _common(one)
    one = commands.add_parser(
        "restore", help="make a cut the newest checkpoint of a model directory, for any number of slots and PS"
    )
    _common(one)
    one.add_argument("model_dir", metavar="MODEL_DIR", help="the model directory of the training that is to go on")
    one.add_argument("--cut", type=whole("cut"), metavar="N", help="this cut (default: the newest consistent one)")
    one.add_argument("--force", action="store_true", help="also when MODEL_DIR has a checkpoint of a later step")
    _dry(one)
    one = commands.add_parser("export", help="write a cut as an ordinary TensorFlow checkpoint")
    _common(one)
    one.add_argument("prefix", metavar="PREFIX", help="of the checkpoint's files, for example /tmp/model.ckpt-1000")
    one.add_argument("--cut", type=whole("cut"), metavar="N", help="this cut (default: the newest consistent one)")
    _dry(one)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="backup directory, or what tf.io.gfile knows")
    parser.add_argument("--json", action="store_true", help="as JSON")


def _dry(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="check everything, and write nothing")


class _Parser(argparse.ArgumentParser):
    """argparse prints the whole usage before an error; here an error is one line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(words: Sequence[str] | None = None) -> int:
    parser = _Parser(prog="deeprec-ext backup", description="Look at disk backups, and make checkpoints of them.")
    add_commands(parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=_Parser))
    arguments = parser.parse_args(words)
    try:
        return int(globals()[f"_{arguments.action}"](arguments))
    except UsageError as error:
        return _fail(error, 2)
    except (DeepRecError, OSError) as error:
        return _fail(error, 1)


def _fail(error: Exception, code: int) -> int:
    print(f"deeprec-ext: {' '.join(str(error).split())}", file=sys.stderr)
    return code


def _print(arguments: argparse.Namespace, values: dict[str, Any], lines: Sequence[str]) -> None:
    print(json.dumps(values, indent=2) if arguments.json else "\n".join(lines))


# ---------------------------------------------------------------------------------------------------------- look


def _list(arguments: argparse.Namespace) -> int:
    place = directory(arguments.dir)
    found = snapshots.look(place)
    newest = chains.newest_consistent(found.manifests, found.damaged)
    cuts = [_described(one, found) for one in found.manifests]
    lines = [
        f"cut {one['cut']:>6}  {one['kind']:<5}  step {one['step']:>10,}  {_when(one['time'])}  "
        f"{format_bytes(one['bytes']):>9}  job {one['job']}" + ("  DAMAGED" if one["damage"] else "")
        for one in cuts
    ]
    lines += sorted(found.damaged.values())
    lines.append(f"newest consistent cut (by size; `verify` reads the bytes): {newest.number if newest else 'none'}")
    _print(
        arguments,
        {"directory": place.path, "cuts": cuts, "newest": newest.number if newest else None,
         "damaged": sorted(found.damaged.values())},
        lines,
    )  # fmt: skip
    return 0


def _described(manifest: Manifest, found: snapshots.Found) -> dict[str, Any]:
    return {
        "cut": manifest.number, "id": manifest.id, "kind": "base" if len(manifest.chain) == 1 else "delta",
        "base": manifest.base.number, "step": manifest.step, "epoch": manifest.epoch, "time": manifest.time,
        "bytes": manifest.cut.bytes, "files": len(manifest.cut.files), "rows": sum(f.rows for f in manifest.cut.files),
        "job": manifest.job, "slots": manifest.slots, "variables": len(manifest.variables),
        "model": manifest.fingerprint, "ledger": bool(manifest.ledger),
        "damage": chains.damage_of(manifest, found.damaged),
    }  # fmt: skip


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _checked(arguments: argparse.Namespace, found: snapshots.Found, manifests: Sequence[Manifest]) -> None:
    """Adds to `found.damaged` what reading the files of these snapshots shows."""
    files = {file.name: file for manifest in manifests for file in manifest.files().values()}
    sound = [file for name, file in sorted(files.items()) if name not in found.damaged]
    found.damaged.update(snapshots.check_files(directory(arguments.dir), sound))
    snapshots.forget_removed(directory(arguments.dir), found)


def _verify(arguments: argparse.Namespace) -> int:
    place = directory(arguments.dir)
    found = snapshots.look(place)
    _checked(arguments, found, found.manifests)
    newest = chains.newest_consistent(found.manifests, found.damaged)
    damaged = sorted(found.damaged.values())
    good = [one.number for one in found.manifests if not chains.damage_of(one, found.damaged)]
    count = len({name for one in found.manifests for name in one.files()})
    verdict = f"{len(damaged)} damaged" if damaged else "all sound"
    lines = [*damaged, f"{count} files of {len(found.manifests)} cuts read: {verdict}"]
    lines.append(f"newest consistent cut: {newest.number} (step {newest.step})" if newest else "no consistent cut")
    _print(
        arguments,
        {"directory": place.path, "files": count, "damaged": damaged, "consistent": good,
         "newest": newest.number if newest else None},
        lines,
    )  # fmt: skip
    return 1 if damaged else 0


# ---------------------------------------------------------------------------------------------------------- write


def _choose(arguments: argparse.Namespace) -> Manifest:
    """The snapshot to use; every byte of it has been read. Raises NoCutError, WrongBackupError, RemovedError."""
    found = snapshots.look(directory(arguments.dir))
    if arguments.cut is not None:
        chosen = [one for one in found.manifests if one.number == arguments.cut]
        if not chosen:
            known = ", ".join(str(one.number) for one in found.manifests[:10])
            raise WrongBackupError(f"{arguments.dir} has no cut {arguments.cut}; there are {known}")
        _checked(arguments, found, chosen)
        if chosen[0] not in found.manifests:
            raise RemovedError(chosen[0].number)
        damage = chains.damage_of(chosen[0], found.damaged)
        if damage:
            raise NoCutError(f"cut {arguments.cut} of {arguments.dir} cannot be used: {'; '.join(damage[:3])}")
        return chosen[0]
    while True:
        chosen_one = snapshots.choose(found, arguments.dir)
        _checked(arguments, found, [chosen_one])
        if chosen_one not in found.manifests:
            raise RemovedError(chosen_one.number)
        if not chains.damage_of(chosen_one, found.damaged):
            if found.damaged:
                print(f"deeprec-ext: cut {chosen_one.number} is used; {'; '.join(sorted(found.damaged.values())[:3])}",
                      file=sys.stderr)  # fmt: skip
            return chosen_one


def _with_cut(arguments: argparse.Namespace, work: Callable[[Manifest], T]) -> tuple[Manifest, T]:
    """Works with the snapshot that is to be used; with a newer one when a job that goes on has removed it meanwhile.

    Raises what `_choose` and `work` raise, and RemovedError: a snapshot that was named is gone, or one after the other is.
    """
    for left in reversed(range(TRIES)):
        try:
            manifest = _choose(arguments)
            try:
                return manifest, work(manifest)
            except DamagedError as error:
                if snapshots.exists(directory(arguments.dir), manifest):
                    raise
                raise RemovedError(manifest.number) from error
        except RemovedError as error:
            if arguments.cut is not None or not left:
                raise
            print(f"deeprec-ext: {error}; a newer one is taken", file=sys.stderr)
    raise AssertionError("the last try returns or raises")


def _export(arguments: argparse.Namespace) -> int:
    place = directory(arguments.dir)
    if arguments.dry_run:
        return _dry_run(arguments, _with_cut(arguments, lambda _: None)[0], arguments.prefix)
    _quiet()
    from deeprec_ext.backup import export

    return _made(arguments, *_with_cut(arguments, lambda one: export.export(place, one, arguments.prefix)))


def _restore(arguments: argparse.Namespace) -> int:
    place, target = directory(arguments.dir), arguments.model_dir
    if any(map(process_cuts.called, snapshots.look(place).manifests)):
        return _restore_kept(arguments, *_with_cut(arguments, lambda one: list(process_cuts.read(place, one))))
    _quiet()
    from deeprec_ext.backup import export

    if arguments.dry_run:
        manifest, _ = _with_cut(arguments, lambda one: export.check_model(one, place.path, target))
        return _dry_run(arguments, manifest, target)
    return _made(
        arguments, *_with_cut(arguments, lambda one: export.restore(place, one, target, force=arguments.force))
    )


def _restore_kept(arguments: argparse.Namespace, manifest: Manifest, arrays: Sequence[Any]) -> int:
    """A cut of a job without PS: the model with which the chief of another one begins."""
    import numpy as np

    target = Path(arguments.model_dir) / f"{process_cuts.called(manifest)}.npz"
    if target.exists() and not arguments.force:
        raise UsageError(f"{target} is there: the model of a job. Add --force to go back to that of the backup")
    if arguments.dry_run:
        return _dry_run(arguments, manifest, str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    arrays = [one for variable, one in zip(manifest.variables, arrays) if not variable.name.startswith("__")]
    draft = target.with_name(f".{target.name}")
    with open(draft, "wb") as to:
        np.savez(to, *arrays, **{KEPT_POSITION: np.frombuffer(manifest.ledger, np.uint8)})
    draft.replace(target)
    size = sum(one.nbytes for one in arrays)
    values = {
        "cut": manifest.number, "step": manifest.step, "file": str(target), "arrays": len(arrays), "bytes": size,
        "ledger": bool(manifest.ledger),
    }  # fmt: skip
    _print(arguments, values, [
        f"cut {manifest.number} is {target}: step {manifest.step}, {len(arrays)} arrays, {format_bytes(size)}. A job "
        f"without PS whose run directory is {target.parent.absolute().parent} begins with it",
    ])  # fmt: skip
    return 0


def _dry_run(arguments: argparse.Namespace, manifest: Manifest, target: str) -> int:
    size = sum(file.raw_bytes for files in manifest.needed().values() for file in files)
    values = {"cut": manifest.number, "step": manifest.step, "target": target, "raw_bytes": size}
    _print(arguments, values, [f"would write cut {manifest.number} (step {manifest.step}) to {target}"])
    return 0


def _made(arguments: argparse.Namespace, manifest: Manifest, made: Any) -> int:
    values = {"cut": manifest.number, **dataclasses.asdict(made), "ledger": bool(manifest.ledger)}
    lines = [f"cut {manifest.number} is checkpoint {made.prefix}: step {made.step}, {made.tensors} tensors, "
             f"{format_bytes(made.bytes)}"]  # fmt: skip
    if made.left_out:
        lines.append(f"not in a checkpoint of this model, or never initialised: {few(made.left_out)}")
    _print(arguments, values, lines)
    return 0


def _quiet() -> None:
    """TensorFlow's own lines are of no use here; a GPU neither."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import tensorflow as tf

    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)


if __name__ == "__main__":
    sys.exit(main())
