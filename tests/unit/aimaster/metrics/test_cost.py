"""Pod-hours and prices: what a job has used, and what pods of the written size would have."""

from __future__ import annotations

import pytest

from deeprec_ext.aimaster.kubernetes.reading import requested
from deeprec_ext.aimaster.kubernetes.reclaim import priced
from deeprec_ext.aimaster.kubernetes.running import written_roles
from deeprec_ext.aimaster.metrics.cost import (
    Account,
    OnNode,
    Priced,
    charged,
    from_json,
    sentence,
    share,
    to_json,
    told,
)
from tests.unit.tfjob_manifests.pods import tfjob
from tfjob.model.spec import TFJob

SPOT = Priced(0.4, 1.0, 4.0, 16 << 30)
GIB = 1 << 30


@pytest.mark.parametrize(
    ("cpu", "memory", "wanted"),
    [(1.0, GIB, 0.25), (1.0, 8 * GIB, 0.5), (0.0, 0, 1.0), (9.0, 0, 1.0), (0.0, 4 * GIB, 0.25)],
)
def test_a_pod_pays_for_what_of_its_node_it_requests(cpu: float, memory: int, wanted: float) -> None:
    assert share(OnNode("ps", "a", cpu, memory), SPOT) == wanted
    assert share(OnNode("ps", "a", cpu, memory), Priced(1.0)) == 1.0, "of a node that is not known it is all"


def test_what_was_saved_is_against_pods_of_the_written_size_on_demand_for_as_long() -> None:
    chief, worker, ps = (OnNode(role, "a", 2.0, 0) for role in ("chief", "worker", "ps"))
    nodes = {"a": SPOT}
    accounts = charged({}, [chief, ps, worker], nodes, 3600.0)
    accounts = charged(accounts, [chief, ps], nodes, 3600.0)  # a worker was given back
    assert from_json(to_json(accounts)) == accounts
    found = told(accounts, {"ps": 1, "chief": 1, "worker": 1})
    assert found["pod_hours"] == {"chief": 2.0, "ps": 2.0, "worker": 1.0}
    assert found["static_pod_hours"] == {"chief": 2.0, "ps": 2.0, "worker": 2.0}
    assert (found["cost"], found["static_cost"], found["saved"]) == (1.0, 3.0, 2.0)  # 5 h × ½ × 0.4; 6 h × ½ × 1.0
    assert sentence(found) == "5 pod-hours, cost 1, 2 less than pods of the written size on demand"


@pytest.mark.parametrize("chief", [True, False])
def test_an_evaluator_is_charged_on_both_sides(chief: bool) -> None:
    given = {"PS": 1, "Evaluator": 1, **({"Chief": 1, "Worker": 1} if chief else {"Worker": 2})}
    written = written_roles(TFJob.parse(tfjob(**given)))
    assert written == {"ps": 1, "chief": 1, "worker": 1, "evaluator": 1}
    every = [OnNode(role, "a", 1.0, 0) for role in written]
    found = told(charged({}, every, {"a": Priced(1.0, 1.0, 4.0)}, 3600.0), written)
    assert (found["cost"], found["static_cost"], found["saved"]) == (1.0, 1.0, 0.0), "it ran as it was written"
    assert found["static_pod_hours"] == found["pod_hours"]
    assert written_roles(TFJob.parse(tfjob()))["evaluator"] == 0


def test_hours_are_counted_where_no_price_is_known_and_a_part_of_a_price_is_said_to_be_one() -> None:
    chief, worker = OnNode("chief", "a", 4.0), OnNode("worker", "b", 4.0)
    found = told(charged({}, [chief, worker], {}, 1800.0), {"chief": 1, "worker": 3})
    assert (found["cost"], found["saved"], found["static_pod_hours"]) == (None, None, {"chief": 0.5, "worker": 1.5})
    assert sentence(found) == "1 pod-hours"
    found = told(charged({}, [chief, worker], {"a": SPOT}, 1800.0), {"chief": 1, "worker": 3})
    assert (found["cost"], found["priced_share"], found["static_cost"]) == (0.2, 0.5, None)
    assert "cost 0.2 (for 50% of them)" in sentence(found)
    assert told({}, {"chief": 1}) == {} == told({"chief": Account()}, {"chief": 1})


def test_prices_are_labels_of_nodes_or_annotations_and_what_is_no_number_is_none() -> None:
    node = {
        "metadata": {"labels": {"x.io/price": "0.4", "other": "1"}, "annotations": {"x.io/on-demand-price": "1.0"}},
        "status": {"allocatable": {"cpu": "3900m", "memory": "16Gi"}},
    }
    assert priced(node, "x.io/price") == Priced(0.4, 1.0, 3.9, 16 * GIB)
    assert priced({"metadata": {"labels": {"x.io/price": "cheap"}}}, "x.io/price") == Priced()
    assert priced({"metadata": {"labels": {"x.io/price": "-4"}}}, "x.io/price").hour == 0.0


def test_what_a_pod_requests_is_the_sum_of_its_containers() -> None:
    one = {"resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "2", "memory": "1Gi"}}}
    assert requested({"containers": [one, {"resources": {"requests": {"memory": "1Gi"}}}, {}]}) == (0.5, 2 * GIB)
    assert requested({"containers": [{"resources": {"requests": {"cpu": "many"}}}]}) == (0.0, 0)
