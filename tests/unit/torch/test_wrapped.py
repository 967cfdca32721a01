"""The stand-ins of a DDP script, with another member that gives what the test says."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not here: make torch")

from deeprec_ext.allreduce.summing import OtherError, Summed  # noqa: E402
from deeprec_ext.elastic.member import joined  # noqa: E402
from deeprec_ext.torch import doorway, process_groups, replica, sampling, wrapped  # noqa: E402
from deeprec_ext.torch.process_groups import all_reduce, barrier, broadcast, get_rank, get_world_size  # noqa: E402
from deeprec_ext.torch.snapshot import Snapshot  # noqa: E402


class Other:
    """A member of a ring of two: the other gives `factor` times what this one gives, of `weight` records."""

    def __init__(self) -> None:
        self.inputs = SimpleNamespace(end_of_epoch=lambda request: SimpleNamespace(rewinds=1))
        self.step, self.factor, self.weight = 5, 3.0, 1.0
        self.leaving = threading.Event()
        self.view = SimpleNamespace(workers=[SimpleNamespace(name="chief-0"), SimpleNamespace(name="worker-0")])
        self.identity = SimpleNamespace(name="chief-0")
        self.place, self.settings = (2, 0), None
        self.sums: list[list[np.ndarray]] = []
        self.elsewhere, self.gradients, self.notices = 0, True, []

    def sum(self, arrays, weight=1.0, **words):
        if self.elsewhere:
            self.elsewhere -= 1
            raise OtherError(self.gradients)
        self.sums.append([np.array(one) for one in arrays])
        self.step = max(0, self.step) + 1
        total = weight + self.weight
        alike = 1 if len(arrays) == 2 else 2  # counts are the same in both
        found = [(one * weight + one * self.factor * self.weight) / (total or 1) for one in arrays[:-alike]]
        found += [one if total else np.zeros_like(one) for one in arrays[-alike:]]
        return Summed([one.astype(arrays[0].dtype) for one in found], total, self.step, True, True, False, 2)

    def notice(self, code, text, remedy, **words) -> None:
        self.notices.append(code)

    def pause(self) -> None:
        self.step = -1


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Other:
    made, one = Other(), replica.REPLICA
    monkeypatch.setattr(one, "member", made)
    monkeypatch.setattr(one, "_joined", made)
    monkeypatch.setattr(one, "chief", True)
    monkeypatch.setattr(one, "_members", 0)
    monkeypatch.setattr(one, "snapshot", Snapshot())
    monkeypatch.setattr(one, "beginning", SimpleNamespace(open=False, end=lambda: None))
    monkeypatch.setattr(replica, "RETRY_SECONDS", 0.0)

    def refuse(reason: str) -> None:
        raise AssertionError(f"refused: {reason}")

    monkeypatch.setattr(joined, "give_up", refuse)
    return made


def gradients(model) -> list[torch.Tensor]:
    return [one.grad.clone() for one in model.parameters()]


def stock(model, x) -> list[torch.Tensor]:
    model.zero_grad()
    model(x).square().mean().backward()
    found = gradients(model)
    model.zero_grad(set_to_none=True)
    return found


def test_gradients_are_the_mean_of_all_by_records_before_the_optimizer_sees_them(member: Other) -> None:
    torch.manual_seed(0)
    inner, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    alone = stock(inner, x)
    model = wrapped.DistributedDataParallel(inner, find_unused_parameters=True, gradient_as_bucket_view=True)
    model(x).square().mean().backward()
    for one, own in zip(gradients(model), alone):
        torch.testing.assert_close(one, own * 2)  # (1 + 3) / 2
    assert list(model.state_dict()) == ["module.weight", "module.bias"] and len(member.sums) == 1


def test_gradients_are_gathered_within_no_sync_and_summed_as_one(member: Other) -> None:
    torch.manual_seed(0)
    inner, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    alone = stock(inner, x)
    model = wrapped.DistributedDataParallel(inner)
    with model.no_sync():
        model(x).square().mean().backward()
    assert not member.sums and replica.REPLICA.accumulates
    model(x).square().mean().backward()
    for one, own in zip(gradients(model), alone):
        torch.testing.assert_close(one, own * 4)
    assert len(member.sums) == 1


def test_each_backward_pass_of_a_step_is_a_sum_of_the_records_of_the_step(member: Other) -> None:
    made = sampling.Pass.__new__(sampling.Pass)
    made._summed, made._taken, made._weight = False, [(None, 4), (None, 2)], 0
    assert made.weight == 6
    made._summed, made._taken = True, []
    assert made.weight == 6
    made._summed = False
    assert made.weight == 0


def test_what_some_have_left_counts_nothing_and_takes_nothing_away(member: Other) -> None:
    """A loader that asks whether to go on gives zeros, with a weight, while others make a step."""
    inner, x = torch.nn.Linear(3, 2), torch.ones(4, 3)
    alone = stock(inner, x)
    member.sum = lambda arrays, *args, **words: Summed([one * 0.8 for one in arrays], 5.0, 9, True, True)
    model = wrapped.DistributedDataParallel(inner)
    model(x).square().mean().backward()
    for one, own in zip(gradients(model), alone):
        torch.testing.assert_close(one, own)


def test_what_nobody_has_used_keeps_no_gradient_and_what_one_has_gets_his(member: Other) -> None:
    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)

        def forward(self, x):
            return self.used(x)

    model = wrapped.DistributedDataParallel(Two())
    model(torch.ones(2, 3)).sum().backward()
    assert model.module.unused.weight.grad is None and model.module.used.weight.grad is not None

    def everything(arrays, weight=1.0, **words):
        return Summed([np.ones_like(one) for one in arrays], 2.0, 9, True, True, False, 2)

    member.sum = everything
    model(torch.ones(2, 3)).sum().backward()
    assert torch.equal(model.module.unused.weight.grad, torch.ones(1, 3))


def test_statistics_of_a_normalisation_are_averaged_and_those_of_its_own_are_not(member: Other) -> None:
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)) + 5
    for averages in (True, False):
        model = wrapped.DistributedDataParallel(torch.nn.BatchNorm1d(3), broadcast_buffers=averages)
        model(x).sum().backward()
        own = 0.1 * x.mean(0)
        torch.testing.assert_close(model.module.running_mean, own * 2 if averages else own)


def test_a_step_to_which_nobody_has_given_anything_leaves_no_gradients(member: Other) -> None:
    model = wrapped.DistributedDataParallel(torch.nn.Linear(3, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0)
    before = [one.detach().clone() for one in model.parameters()]
    member.sum = lambda arrays, *args, **words: Summed([np.zeros_like(one) for one in arrays], 0.0, 9, True, True)
    model(torch.ones(2, 3)).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert all(torch.equal(*pair) for pair in zip(before, model.parameters()))


def test_who_finds_the_others_elsewhere_takes_no_part_and_tries_again(member: Other) -> None:
    member.elsewhere = 2
    model = wrapped.DistributedDataParallel(torch.nn.Linear(3, 2))
    model(torch.ones(2, 3)).sum().backward()
    assert member.elsewhere == 0 and len(member.sums) == 1


def test_whose_model_is_another_one_ends_and_who_waits_for_a_long_validation_does_not(
    member: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "OTHERS_MAX", 5)
    monkeypatch.setattr(replica, "RETRY_SECONDS_MAX", 0.0)
    model = wrapped.DistributedDataParallel(torch.nn.Linear(3, 2))
    member.elsewhere, member.gradients = 50, False
    model(torch.ones(2, 3)).sum().backward()
    assert len(member.sums) == 1
    member.elsewhere, member.gradients = 50, True
    with pytest.raises(OtherError, match="models are not alike"):
        model(torch.ones(2, 3)).sum().backward()


def test_steps_and_rates_that_come_apart_are_told(member: Other) -> None:
    model = wrapped.DistributedDataParallel(torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    pace, whole = replica.REPLICA.snapshot.pace, member.sum
    pace.watch(optimizer)

    def others(steps: float, rate: float):
        def summed(arrays, *args, **words):
            theirs = np.array(arrays[-2])
            theirs[0] += steps
            theirs[len(theirs) // 2] = theirs[0] ** 2
            theirs[-1] += rate
            if rate:
                theirs[6], theirs[6 + (len(theirs) - 1) // 2] = 7.5, 60.0  # one has 7, one 8
            return whole([*arrays[:-2], theirs, arrays[-1]], *args, **words)

        return summed

    member.sum = others(0.0, 0.05)
    model(torch.ones(2, 3)).sum().backward()
    before = model.module.bias.detach().clone()
    grad = model.module.bias.grad.clone()
    optimizer.step()
    torch.testing.assert_close(model.module.bias, before - 0.15 * grad)
    assert "learning-rates-differ" in member.notices and optimizer.param_groups[0]["lr"] == 0.1
    member.sum = others(1.0, 0.0)
    with pytest.raises(AssertionError, match=r"optimizers have made other steps here.*no_sync"):
        model(torch.ones(2, 3)).sum().backward()


@pytest.mark.parametrize("position, weight", [(0, 1.0), (2, 4.0), (0, 0.0)])
def test_a_newcomer_takes_the_state_again_where_it_has_not_met_the_others_in_a_step(
    member: Other, position: int, weight: float
) -> None:
    """A loader's state is that before a forward pass, which counts the batches of a normalisation."""
    member.step, pauses, whole = -1, [], member.sum

    def joins(arrays, *args, **words):
        replica.REPLICA.snapshot.came = replica.REPLICA.snapshot.place
        if len(pauses) < 2:
            member.step = 7
            found = [np.zeros_like(one) for one in arrays[:-1]]
            return Summed([*found, np.full(1, position, np.float32)], weight, 7, False, True)
        return whole(arrays, *args, **words)

    def pause() -> None:
        pauses.append(member.step)
        member.step = -1

    member.sum, member.pause = joins, pause
    model = wrapped.DistributedDataParallel(torch.nn.Linear(3, 2))
    model(torch.ones(2, 3)).sum().backward()
    assert pauses == [7, 7] and model.module.bias.grad is not None


def test_sparse_gradients_are_refused_by_name(member: Other) -> None:
    model = wrapped.DistributedDataParallel(torch.nn.Embedding(5, 3, sparse=True))
    with pytest.raises(AssertionError, match="sparse=True"):
        model(torch.tensor([1, 2])).sum().backward()


@pytest.mark.parametrize("kind", [torch.int64, torch.float32, torch.float64, torch.bfloat16])
def test_sums_of_a_script_s_own_have_the_type_they_had(member: Other, kind: torch.dtype) -> None:
    wrapped_model = wrapped.DistributedDataParallel(torch.nn.Linear(1, 1))
    assert wrapped_model.require_backward_grad_sync
    one = torch.tensor([1, 2, 250], dtype=kind)
    all_reduce(one)
    assert one.dtype == kind and one.tolist() == [4, 8, 1000]
    work = all_reduce(one, op=torch.distributed.ReduceOp.SUM, async_op=True)
    assert work.wait() and one.tolist() == [16, 32, 4000]
    barrier()


@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.uint8, torch.float16, torch.float64])
def test_what_one_broadcasts_comes_bit_for_bit(member: Other, kind: torch.dtype) -> None:
    member.weight = 0.0
    one = torch.tensor([1, 0, 77], dtype=torch.float64).to(kind)
    before = one.clone()
    broadcast(one, src=0)
    assert torch.equal(one, before) and len(member.sums) == 1


def test_who_has_not_trained_with_the_others_keeps_what_it_has(member: Other) -> None:
    model = wrapped.DistributedDataParallel(torch.nn.Linear(1, 1))
    member.step = -1
    one = torch.ones(3)
    all_reduce(one)
    assert model is not None and one.tolist() == [1, 1, 1] and not member.sums


def test_sums_before_there_is_a_model_and_other_operations_are_refused_by_name(member: Other) -> None:
    with pytest.raises(AssertionError, match="wrap the model in DistributedDataParallel"):
        all_reduce(torch.ones(1))
    model = wrapped.DistributedDataParallel(torch.nn.Linear(1, 1))
    with pytest.raises(AssertionError, match=r"all_reduce with ReduceOp\.MAX"):
        all_reduce(torch.ones(1), op=torch.distributed.ReduceOp.MAX)
    with pytest.raises(AssertionError, match=r"torch\.distributed\.all_gather cannot be followed"):
        process_groups.refusal("all_gather")([], torch.ones(1))
    with pytest.raises(AssertionError, match="register_comm_hook"):
        model.register_comm_hook(None, None)


def test_the_world_is_the_last_sum_and_before_the_first_the_ring_as_it_is(member: Other) -> None:
    assert (get_rank(), get_world_size()) == (0, 2)
    member.view.workers.append(SimpleNamespace(name="worker-1"))
    assert get_world_size() == 3
    member.view.workers = [SimpleNamespace(name="worker-0")]
    assert get_world_size() == 2  # and this one, which is on its way
    replica.REPLICA.heard(Summed([], 1.0, 9, True, True, False, 4))
    assert get_world_size() == 4  # as all that were in it have heard, whatever view comes


def test_without_a_group_pytorch_s_own_words_are_said() -> None:
    with pytest.raises(RuntimeError, match="Default process group has not been initialized"):
        wrapped.DistributedDataParallel(torch.nn.Linear(1, 1))


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_order_of_an_epoch_is_pytorch_s(shuffle: bool) -> None:
    data, epoch = list(range(100)), 3
    ours = sampling.DistributedSampler(data, shuffle=shuffle, seed=5)
    theirs = torch.utils.data.distributed.DistributedSampler(data, 1, 0, shuffle=shuffle, seed=5)
    for one in (ours, theirs):
        one.set_epoch(epoch)
    assert ours.order().tolist() == list(theirs)


def test_records_are_divided_without_padding_where_nothing_is_trained(member: Other) -> None:
    data = list(range(7))
    loader = torch.utils.data.DataLoader(data, 2, sampler=sampling.DistributedSampler(data, shuffle=False))
    with torch.no_grad():
        first = [one for batch in sampling.iterated(type(loader).__iter__, loader) for one in batch.tolist()]
        member.place = (2, 1)
        second = [one for batch in sampling.iterated(type(loader).__iter__, loader) for one in batch.tolist()]
    assert (first, second) == ([0, 2, 4, 6], [1, 3, 5])


def test_the_number_of_a_pass_is_that_of_its_epoch_or_the_next() -> None:
    one = sampling.DistributedSampler([1, 2])
    assert one.number() == 0
    one.set_epoch(4)
    assert one.number() == 4
    one.passed = 4
    assert one.number() == 5
    one.set_epoch(0)  # a script that always says the same
    assert one.number() == 5


def test_a_schedule_stays_at_its_end_and_a_step_of_nothing_scales_nothing():
    doorway._let_step_nothing()
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([weight], 0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=4)
    scaler, rates = torch.cuda.amp.GradScaler(enabled=False), []
    for _ in range(8):  # more than there are
        scaler.unscale_(optimizer)
        scaler.step(optimizer)  # without gradients
        scaler.update()
        schedule.step()
        rates.append(optimizer.param_groups[0]["lr"])
    assert len(set(rates[3:])) == 1 and len(set(rates)) == 4
    assert weight.tolist() == [1.0] * 3
    weight.grad = torch.ones(3)
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() != [1.0] * 3


def test_what_is_saved_behind_an_epoch_that_has_later_ones_is_left_as_it_is_or_made(
    member: Other, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    """A chief that begins again has the model of the others; files that are there were saved then or later."""
    one = replica.REPLICA
    member.step, one.snapshot.place = -1, (0, 3)
    monkeypatch.setattr(one, "job_place", (0, 5))
    there, gone, memory = tmp_path / "there", tmp_path / "gone", io.BytesIO()
    there.write_bytes(b"of epoch 4")
    for place in (there, gone, str(tmp_path / "text"), memory):
        doorway._save(torch.save, {"weight": torch.ones(3)}, place)
    doorway._save(torch.save, {"weight": torch.ones(3)}, f=there)
    assert there.read_bytes() == b"of epoch 4"
    memory.seek(0)
    for place in (gone, str(tmp_path / "text"), memory):
        assert torch.load(place)["weight"].tolist() == [1.0] * 3
    monkeypatch.setattr(one, "job_place", (0, 3))  # no later one
    doorway._save(torch.save, {"weight": torch.ones(3)}, there)
    assert torch.load(there)["weight"].tolist() == [1.0] * 3


def test_a_chief_that_has_the_state_of_the_others_does_not_go_back_to_what_it_kept(
    member: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All passes were over when it came: it is given the state at the end of the last one, and the script saves that."""
    one, back = replica.REPLICA, []
    monkeypatch.setattr(one, "_back", lambda: back.append(1))
    for found in (True, False):
        member.step = -1
        monkeypatch.setattr(one, "job_place", None)
        monkeypatch.setattr(one, "_kept_at", (0, 1))
        monkeypatch.setattr(one, "current", None)

        def look(found: bool = found) -> bool:
            one.snapshot.came = (0, 1) if found else None
            return found

        member.look = look
        passed = object.__new__(sampling.Pass)
        passed._sampler, passed._number, passed._held = SimpleNamespace(place=0), 1, None
        monkeypatch.setattr(passed, "_begin", lambda: None, raising=False)
        monkeypatch.setattr(passed, "_find", lambda: False, raising=False)
        monkeypatch.setattr(passed, "_sample", lambda: "batch", raising=False)
        monkeypatch.setattr(passed, "_end", lambda: None, raising=False)
        assert list(passed.run()) == ["batch"]
        assert len(back) == (0 if found else 1) and one._kept_at is None


@pytest.mark.parametrize("there", [False, True], ids=["nobody has the model", "somebody has"])
def test_a_chief_that_finds_in_a_ring_that_nobody_has_the_model_says_so_before_it_trains(
    member: Other, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """The AIMaster believes for a while in who has died without a word, and knows nothing at its own beginning."""
    one, asked, sums, whole = replica.REPLICA, [], [], member.sum
    unknown, trains = SimpleNamespace(rewinds=0, begun=False), SimpleNamespace(rewinds=0, begun=True)
    replies = [unknown, unknown, trains]

    def end_of_epoch(request):
        asked.append((request.restored, request.begins))
        return replies.pop(0) if replies else SimpleNamespace(rewinds=int(request.begins), begun=True)

    def joins(arrays, weight=1.0, entered=lambda: None, **words):
        if member.step < 0:
            member.step, one.snapshot.came = (7, one.snapshot.place) if there else (0, None)
        entered()
        sums.append(weight)
        return whole(arrays, weight, **words)

    member.inputs, member.step, member.sum, member.weight = SimpleNamespace(end_of_epoch=end_of_epoch), -1, joins, 0.0
    monkeypatch.setattr(one, "_kept", SimpleNamespace(where=lambda: b"there", look=lambda *given: None))
    monkeypatch.setattr(one, "_back", lambda: (0, 0))
    for name in ("_restored", "_went_back", "_asks"):
        monkeypatch.setattr(one, name, name == "_asks")
    for name in ("_where", "_kept_at"):
        monkeypatch.setattr(one, name, None)
    one._go_back(b"there")
    assert asked == [(b"there", False)] * 3 and not one._went_back, "it asks until that is known"
    del asked[:]
    model = wrapped.DistributedDataParallel(torch.nn.Linear(3, 2))
    before = model.module.bias.detach().clone()
    model(torch.ones(2, 3)).sum().backward()
    if there:
        assert asked == [(b"there", False)] and sums == [1.0] and not one._went_back
    else:
        assert asked == [(b"there", False), (b"there", True)] and one._went_back
        assert sums == [0.0], "what it has computed is of records that are free again"
    assert torch.equal(before, model.module.bias)
