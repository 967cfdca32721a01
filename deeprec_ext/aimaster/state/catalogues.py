"""The model's variables, as the graphs of all trainers together have them.

Graphs of roles differ, in stock TensorFlow too: a chief with statistics of its own has variables that no worker knows. So what
trainers tell is merged by variable, and what one of them does not name stays: a trainer that leaves does not take its variables
away. They go when the model begins anew (another generation) and the chief has told what it consists of then.

A trainer tells a variable before the first run that could make it on a PS, long before it knows how steps update it
(`UPDATE_UNSPECIFIED`), so nothing is on a PS that this catalogue does not have; such a variable is copied whole, in the pause.
The same name with another shape, type, slot or cut is no difference between roles but two models: it is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from deeprec_ext.aimaster.store.store import Store
from deeprec_ext.errors import RefusedError
from deeprec_ext.proto import bounds
from deeprec_ext.proto import deeprec_ext_pb2 as pb

FINGERPRINTS_MAX = 100
"""Catalogues that are remembered as told, the latest ones: trainers of one script tell one or two different ones."""

NAME_SHOWN = 200
BLOB, TOLD = "catalogue", "catalogues_told"


class Catalogues:
    """All that was told (`known`), in the store. `present` is what everybody else works with."""

    def __init__(self, store: Store, slots: int) -> None:
        self._store, self._slots = store, slots
        self.known = self._stored()
        told = store.get(TOLD) or {}
        self._generation, self._fingerprints = int(told.get("generation", 0)), list(told.get("fingerprints", ()))

    def _stored(self) -> pb.Catalogue:
        """What an AIMaster before this one has kept; of it, what can be."""
        wire = self._store.blob(BLOB)
        try:
            known = pb.Catalogue.FromString(wire)
        except DecodeError as error:
            self._store.quarantine("catalogue", BLOB, wire, error, "DELETE FROM blobs WHERE key=?")
            return pb.Catalogue()
        good = []
        for variable in known.variables:
            violation = bounds.check(variable, "variable.")
            if violation is None and variable.slot < self._slots:
                good.append(variable)
                continue
            why = violation or f"it is on slot {variable.slot}, the job has the slots 0 to {self._slots - 1}"
            self._store.quarantine("variable", variable.name[:NAME_SHOWN], variable.SerializeToString(), why)
        if len(good) < len(known.variables):
            del known.variables[:]
            known.variables.extend(good)
            known.fingerprint = known.fingerprint and fingerprint(known)
            self._store.put_blob(BLOB, known.SerializeToString(deterministic=True))
        return known

    @property
    def present(self) -> pb.Catalogue:
        """Empty until a trainer has told how its steps update the variables."""
        return self.known if self.known.fingerprint else pb.Catalogue()

    def told(self, generation: int) -> Sequence[str]:
        """Fingerprints of the catalogues that need not be told again."""
        return self._fingerprints if self._generation == generation else ()

    def add(self, teller: str, told: pb.Catalogue, generation: int) -> bool:
        """Whether that changed anything. Raises RefusedError, naming the variable and who differs.

        Args:
            teller: name of the trainer.
            generation: of the model that it trains.
        """
        if told.fingerprint in self.told(generation):
            return False
        found = merged(self.known, told, teller, generation, self._slots)
        known = self._fingerprints if self._generation == generation else []
        self._generation, self._fingerprints = generation, [*known, told.fingerprint][-FINGERPRINTS_MAX:]
        changed = found.SerializeToString(deterministic=True) != self.known.SerializeToString(deterministic=True)
        self.known = found
        with self._store.transaction():
            self._store.put(**{TOLD: {"generation": generation, "fingerprints": self._fingerprints}})
            if changed:
                self._store.put_blob(BLOB, found.SerializeToString())
        return changed


def merged(known: pb.Catalogue, told: pb.Catalogue, teller: str, generation: int, slots: int) -> pb.Catalogue:
    """Both together. Raises RefusedError. Pure.

    Nobody behind this looks again whether a slot is one: maps are asked by it. What was told in an earlier generation gives way
    to what is told now, and goes when the chief has told everything.
    """
    complete = is_complete(told)
    begins = teller.startswith("chief") and complete
    variables = {one.name: one for one in known.variables if not begins or one.generation >= generation}
    for new in told.variables:
        _refuse_no_slot(new, teller, slots)
        old = variables.get(new.name)
        if old is not None and old.generation >= generation:
            _refuse_difference(old, new, teller)
        variables[new.name] = _one(old, new, teller, generation)
    result = pb.Catalogue(
        variables=[variables[name] for name in sorted(variables)],
        warnings=list(dict.fromkeys([*known.warnings, *told.warnings])) if complete else known.warnings,
        global_step=known.global_step or told.global_step,
    )
    if complete and variables.keys() == {one.name for one in told.variables}:
        result.fingerprint = told.fingerprint
    elif complete or known.fingerprint:
        result.fingerprint = fingerprint(result)
    if known.fingerprint and fingerprint(result) == fingerprint(known):
        result.fingerprint = known.fingerprint  # another one would make backups begin anew
    return result


def is_complete(told: pb.Catalogue) -> bool:
    """Whether the trainer knows already how its steps update its variables."""
    return all(one.update != pb.Variable.UPDATE_UNSPECIFIED for one in told.variables)


def fingerprint(catalogue: pb.Catalogue) -> str:
    """Of what is to be copied, from where and how; not of who told it."""
    digest = hashlib.sha256(catalogue.global_step.encode())
    for variable in catalogue.variables:
        copy = pb.Variable()
        copy.CopyFrom(variable)
        copy.declared_by, copy.generation = "", 0
        digest.update(copy.SerializeToString(deterministic=True))
    return digest.hexdigest()


def tables_fingerprint(catalogue: pb.Catalogue) -> str:
    """Of the tables whose dirty rows are marked: a further dense variable needs no other marks."""
    tables = [v for v in catalogue.variables if v.update == pb.Variable.ROWS]
    known = [(v.name, v.bitmap, v.slot, tuple(v.shape)) for v in tables]
    return hashlib.sha256(repr(known).encode()).hexdigest()


def _one(old: pb.Variable | None, new: pb.Variable, teller: str, generation: int) -> pb.Variable:
    result = pb.Variable()
    result.CopyFrom(new)
    result.generation, result.declared_by = generation, teller
    if old is None or old.generation < generation:
        return result
    result.declared_by = old.declared_by
    result.bytes, result.state = new.bytes or old.bytes, new.state or old.state
    result.shape[:] = new.shape if new.bytes else old.shape
    if not teller.startswith("chief") or not new.saved_name:  # checkpoints are the chief's
        result.saved_name, result.slice = old.saved_name or new.saved_name, old.slice or new.slice
    unknown = pb.Variable.UPDATE_UNSPECIFIED
    if new.update == unknown or (old.update == pb.Variable.DENSE and new.update != unknown):
        result.update, result.bitmap = old.update, old.bitmap
    elif old.update == new.update == pb.Variable.ROWS:
        result.bitmap = old.bitmap or new.bitmap  # any one does, all writes mark the one that they are told
    return result


@dataclass(frozen=True)
class _Aspect:
    name: str
    old: object
    new: object


def _aspects(old: pb.Variable, new: pb.Variable) -> Iterable[_Aspect]:
    if old.bytes and new.bytes:  # else one of the shapes is not known before the run
        yield _Aspect("shape", tuple(old.shape), tuple(new.shape))
    yield _Aspect("type", old.dtype, new.dtype)
    yield _Aspect("slot", old.slot, new.slot)
    yield _Aspect("kind of variable", _kind(old), _kind(new))
    yield _Aspect("container", old.container, new.container)
    if old.slice and new.slice:
        yield _Aspect("cut", old.slice, new.slice)


def _kind(variable: pb.Variable) -> str:
    return "reference" if variable.reference else "resource"


def _refuse_no_slot(new: pb.Variable, teller: str, slots: int) -> None:
    if not 0 <= new.slot < slots:
        raise RefusedError(
            f"the variable {new.name} of {teller} is on slot {new.slot}, but the job has the slots 0 to {slots - 1}; take the "
            "number of parameter servers from TF_CONFIG, or run with more --slots"
        )


def _refuse_difference(old: pb.Variable, new: pb.Variable, teller: str) -> None:
    different = [one for one in _aspects(old, new) if one.old != one.new]
    if different:
        what = " and ".join(f"{one.name} {one.new} instead of {one.old}" for one in different)
        raise RefusedError(
            f"the variable {new.name} is another one in the graph of {teller} than in that of {old.declared_by or 'another'}: "
            f"{what}; run the same script everywhere, and make what only one role has after what all have, or place it by "
            "tf.device"
        )
