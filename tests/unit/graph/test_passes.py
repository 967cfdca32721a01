"""Placement, seeds, and the list of passes itself."""

from collections import Counter

import pytest
import tensorflow as tf

from deeprec_ext import errors
from deeprec_ext.graph import Context, register_pass, registered_passes, rewrite, seed_apart, unregister_pass

v1 = tf.compat.v1


def small_graph(setter):
    with tf.Graph().as_default() as graph, v1.device(setter):
        tables = [v1.get_variable(f"t{i}", [4, 2]) for i in range(4)]

        @tf.function
        def inside(x):
            with v1.device("/job:ps/task:3/cpu:0"):
                return x + 1.0

        loss = tf.add_n([tf.reduce_sum(t) for t in tables]) + inside(tf.constant(1.0)) + tf.random.uniform([], seed=5)
        loss += tf.random.stateless_uniform([], seed=[1, 2]) + tf.random.normal([])
        v1.train.AdagradOptimizer(0.1).minimize(loss, v1.train.get_or_create_global_step())
    return graph.as_graph_def()


def devices(definition):
    return {n.name: n.device for n in definition.node}


def test_slots_move_to_their_ps_also_inside_functions(setter):
    graph_def = small_graph(setter)
    result = rewrite(graph_def, Context((5, 6, 5, 9)))
    before, after = devices(graph_def), devices(result.definition)
    for name, device in before.items():
        expected = device
        for slot, task in enumerate((5, 6, 5, 9)):
            if device.startswith("/job:ps") and f"task:{slot}" in device:
                expected = device.replace(f"task:{slot}", f"task:{task}")
        assert after[name] == expected
    inside = {n.device for f in result.definition.library.function for n in f.node_def}
    assert any("/job:ps" in d and "task:9" in d for d in inside)
    assert not any("/job:ps" in d and "task:3" in d for d in inside)


def test_the_identity_map_changes_no_device(setter):
    graph_def = small_graph(setter)
    once = rewrite(graph_def, Context((0, 1, 2, 3), dedup="off"))
    assert devices(once.definition) == devices(graph_def)
    assert once.reports[0].changed == 0


@pytest.mark.parametrize("slot_map", [None, (1, 1, 1, 1)])
def test_the_input_stays_as_it_was(setter, slot_map):
    graph_def = small_graph(setter)
    copy = graph_def.SerializeToString(deterministic=True)
    rewrite(graph_def, Context(slot_map, {"t0": "t0@dirty"}, swaps=2))
    assert graph_def.SerializeToString(deterministic=True) == copy


def test_on_the_spot_no_job_is_left(setter):
    result = rewrite(small_graph(setter), Context(None))
    everything = [*result.definition.node, *(n for f in result.definition.library.function for n in f.node_def)]
    assert not any(word in n.device for n in everything for word in ("job", "task", "replica"))
    assert any(n.device for n in everything), "the kind of device stays"


def test_a_slot_beyond_the_map_is_refused(setter):
    with pytest.raises(errors.RefusedError, match="--slots"):
        rewrite(small_graph(setter), Context((0, 0)))


def test_seeds_change_with_each_swap_and_only_where_there_is_a_seed(setter):
    graph_def = small_graph(setter)

    def seeds(swaps):
        nodes = rewrite(graph_def, Context((0, 0, 0, 0), swaps=swaps)).definition.node
        return {n.name: (n.attr["seed"].i, n.attr["seed2"].i) for n in nodes if "seed2" in n.attr}

    plain, one, two = seeds(0), seeds(1), seeds(2)
    fixed = {name for name, pair in plain.items() if any(pair)}
    assert fixed and fixed < set(plain)
    for name in plain:
        if name in fixed:
            assert len({plain[name], one[name], two[name]}) == 3 and one == seeds(1)
        else:
            assert plain[name] == one[name] == two[name] == (0, 0)


def test_of_several_sessions_of_a_view_each_op_draws_apart_from_where_it_was_before(setter):
    graph_def, before = small_graph(setter), Counter()

    def seeds(earlier=0):
        copy = tf.compat.v1.GraphDef.FromString(graph_def.SerializeToString())
        seed_apart(copy, before, earlier)
        return {n.name: n.attr["seed2"].i for n in copy.node if "seed2" in n.attr and n.attr["seed2"].i}

    original = {n.name: n.attr["seed2"].i for n in graph_def.node if "seed2" in n.attr and n.attr["seed2"].i}
    assert original and seeds() == original
    again = seeds()
    assert again.keys() == original.keys() and not any(again[name] == original[name] for name in again)
    before.clear()
    assert seeds(earlier=1) == again


class Counting:
    name = "counting"

    def applies(self, context):
        return context.swaps != 7

    def apply(self, rewriting):
        return len(rewriting.index.nodes), "nodes"


def test_users_add_passes_at_the_place_they_want(setter):
    for place in ({"before": "seeds"}, {"after": "placement"}, {}):
        register_pass(Counting(), **place)
        try:
            order = [p.name for p in registered_passes()]
            at = order.index("counting")
            if "before" in place:
                assert order[at + 1] == "seeds"
            elif "after" in place:
                assert order[at - 1] == "placement"
            else:
                assert order[at + 1] == "dedup"
            reports = {r.name: r for r in rewrite(small_graph(setter), Context((0, 0, 0, 0))).reports}
            assert reports["counting"].changed > 0
            assert "counting" not in {r.name for r in rewrite(small_graph(setter), Context((0,) * 4, swaps=7)).reports}
            with pytest.raises(errors.UsageError, match="registered already"):
                register_pass(Counting())
        finally:
            unregister_pass("counting")


def test_an_unknown_place_is_refused_with_the_known_ones():
    with pytest.raises(errors.UsageError, match="placement"):
        register_pass(Counting(), before="nonsense")
