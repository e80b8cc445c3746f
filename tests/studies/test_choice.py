"""Automatic choice of a similarity: the rule, the menu, and equal routes to S."""

import dataclasses
import itertools
import json

import jax.numpy as jnp
import numpy as np
import pytest

from gnnrp import datasets, graph, metrics, propagation
from gnnrp.datasets import sbm
from gnnrp.kernels import features
from gnnrp.propagation import similarity
from gnnrp.runtime import json_files
from gnnrp.runtime.options import Options
from gnnrp.studies import auto_rp, choice, presets, similarities
from gnnrp.studies import rp as rp_study
from gnnrp.studies.candidates import Candidate, Similarities
from gnnrp.types import Split


def generate(share=1.0, num_splits=2):
    data = sbm.generate(
        1,
        homophilic_fraction=share,
        block_size=30,
        train_per_class=5,
        num_val=40,
        num_test=60,
    )
    rng = np.random.default_rng(0)
    orders = [rng.permutation(data.num_nodes) for _ in range(num_splits)]
    masks = [
        np.stack([np.isin(np.arange(data.num_nodes), order[part]) for order in orders])
        for part in (slice(40), slice(40, 80), slice(80, None))
    ]
    return data._replace(splits=Split(*masks), features=data.features.astype(float))


@pytest.fixture(scope="module")
def data():
    return generate()


@pytest.fixture(scope="module")
def task(data):
    return auto_rp.make_task(data)


@pytest.fixture(scope="module")
def found(task):
    return choice.choose(task, seconds=1e6)


@pytest.fixture(scope="module")
def directed(data):
    """Return a task whose edges go from the lower to the higher node."""
    edges = np.sort(data.edges, axis=0)[::-1]
    W = graph.raw_adjacency(edges, data.num_nodes, directed=True)
    assert (W != W.T).nnz > 0
    return auto_rp.make_task(data)._replace(directed=W)


def test_directed_walks_are_powers_of_the_coupling(directed):
    W = directed.directed.toarray() + np.eye(directed.directed.shape[0])
    B = W / np.sqrt(np.outer(W.sum(axis=1), W.sum(axis=0)))
    C = (B @ B.T + B.T @ B) / 2
    candidate = Candidate((presets.RPSettings(power=2),), directed=(True,))
    assert str(candidate) == "C^2"
    v = np.random.default_rng(0).standard_normal((len(C), 3))
    found = Similarities(directed).build(candidate)(jnp.asarray(v))
    np.testing.assert_allclose(found, C @ C @ v, atol=1e-5)
    assert np.linalg.norm(C, 2) <= 1 + 1e-12


@pytest.mark.parametrize("scaling", ["standard", "cosine"])
def test_directed_kernels_have_hops_along_and_against_the_edges(directed, scaling):
    part = dataclasses.replace(presets.hop_settings(2), scaling=scaling)
    candidate = Candidate((part,), directed=(True,))
    assert str(candidate) == f"2-hop directed kernel, {scaling}, γ=1"
    hops = features.HopSettings(2, scaling=scaling)
    W = directed.directed
    z = np.hstack([
        features.hop_features(directed.features, each, hops) for each in (W, W.T)
    ])
    distances = np.sum((z[:, None] - z[None]) ** 2, axis=-1) / 2
    expected = similarities.gaussian(jnp.asarray(distances), 1.0, centered=True)
    v = jnp.asarray(np.random.default_rng(0).standard_normal((len(z), 3)), z.dtype)
    found = Similarities(directed).build(candidate)
    np.testing.assert_allclose(found(v), expected(v), atol=2e-5)


def test_directed_candidates_are_tried_only_where_directions_count(directed, found):
    assert not any(any(trial.candidate.directed) for trial in found.trials)
    there = choice.choose(directed, seconds=1e6)
    names = [str(trial.candidate) for trial in there.trials]
    assert names[:7] == ["A", "A^2", "A^4", "A^8", "C", "C^2", "C^4"]
    assert "directed kernel" in names[9]
    assert there.as_dict()["trials"][9]["parts"][0]["directed"] is True


def test_each_split_takes_its_best_validation_score_the_first_of_several(found):
    val = np.stack([trial.val for trial in found.trials])
    np.testing.assert_array_equal(found.chosen, np.argmax(val, axis=0))
    np.testing.assert_array_equal(found.val, val.max(axis=0))


def test_the_predictions_are_those_of_the_chosen_step(task, data, found):
    maps = Similarities(task)
    for split, number in enumerate(found.chosen):
        trial = found.trials[number]
        settings = trial.candidate.parts[-1]
        one = datasets.select_split(data, split)
        again = propagation.run(
            maps.build(trial.candidate),
            task.targets,
            Split(*(mask[0] for mask in one.splits)),
            propagation.Steps(trial.step_size, int(trial.best_step[split])),
            metric=metrics.accuracy,
            initial=rp_study.class_shares(task.targets, one.splits.train)[0]
            if settings.is_centered
            else None,
        )
        assert float(again.val[-1]) == pytest.approx(float(trial.val[split]))
        np.testing.assert_allclose(
            found.predictions[split], again.predictions, atol=1e-5
        )


def test_a_shuffled_test_mask_changes_no_choice(data, found):
    rng = np.random.default_rng(5)
    test = ~data.splits.train & ~data.splits.val & (rng.uniform(size=(2, 1)) < 2)
    test &= rng.uniform(size=test.shape) < 0.5
    shuffled = data._replace(splits=data.splits._replace(test=test))
    labels = np.where(
        test.any(axis=0) & ~(data.splits[0] | data.splits[1]).any(0), 0, data.labels
    )
    again = choice.choose(
        auto_rp.make_task(shuffled._replace(labels=labels)), seconds=1e6
    )
    np.testing.assert_array_equal(again.chosen, found.chosen)
    np.testing.assert_array_equal(again.predictions, found.predictions)
    assert [str(x.candidate) for x in again.trials] == [
        str(x.candidate) for x in found.trials
    ]


def test_the_menu_climbs_each_ladder_until_it_gets_no_better(found):
    names = [str(trial.candidate) for trial in found.trials]
    assert names[:4] == ["A", "A^2", "A^4", "A^8"]
    assert len(set(names)) == len(names)
    tried = {
        trial.candidate.parts[0].gamma
        for trial in found.trials
        if trial.candidate.parts[0].hops is not None
    }
    assert tried >= {0.3, 1.0, 3.0}
    assert sum(" + " in name for name in names) >= 1
    assert names[-1] == "A^3 (gaussian kernel γ=1) A^3"


def test_without_features_the_menu_has_powers_only(data):
    bare = data._replace(features=None)
    found = choice.choose(auto_rp.make_task(bare), seconds=1e6)
    assert [str(trial.candidate) for trial in found.trials] == [
        "A",
        "A^2",
        "A^4",
        "A^8",
    ]


def test_where_neighbors_differ_a_kernel_of_hops_is_chosen():
    found = choice.choose(auto_rp.make_task(generate(share=0.0)), seconds=1e6)
    best = found.trials[found.chosen[0]].candidate
    assert any(part.hops is not None for part in best.parts)
    by_name = {str(trial.candidate): trial for trial in found.trials}
    assert found.val.mean() > by_name["A^2"].val.mean()


def test_on_a_large_graph_the_first_splits_climb_and_the_best_two_run_on_all(
    monkeypatch,
):
    bare = generate(num_splits=4)._replace(features=None)  # a short menu
    task = auto_rp.make_task(bare)
    monkeypatch.setattr(choice, "MAX_ENTRIES", 2 * task.targets.size)
    assert choice.num_searched(task) == 2
    found = choice.choose(task, seconds=1e6)
    first = task._replace(train=task.train[:2], val=task.val[:2])
    alone = choice.choose(first, seconds=1e6)
    assert [len(trial.val) for trial in found.trials] == [2] * len(found.trials)
    assert found.as_dict()["num_splits"] == 2
    names = [str(trial.candidate) for trial in found.trials]
    assert names == [str(trial.candidate) for trial in alone.trials]
    means = [-trial.val.mean() for trial in found.trials]
    best = set(np.argsort(means, kind="stable")[:2].tolist())
    assert set(found.chosen.tolist()) <= best
    for number in best:  # each split takes the better of the two
        trial = choice._try(
            task, found.trials[number].candidate, Similarities(task), 4, Options()
        ).trial
        assert (found.val >= trial.val).all()
        mine = found.chosen == number
        np.testing.assert_array_equal(found.val[mine], trial.val[mine])
        np.testing.assert_array_equal(found.best_step[mine], trial.best_step[mine])


def test_small_graphs_search_on_all_splits(task):
    assert choice.num_searched(task) == 2
    many = task._replace(train=np.tile(task.train, (10, 1)))
    assert choice.num_searched(many) == 20


def test_once_the_time_is_over_the_rest_is_skipped_and_named(task):
    found = choice.choose(task, seconds=1e-9)
    assert len(found.trials) == 1
    assert next(iter(found.skipped)) == "A^2"
    assert set(found.skipped.values()) == {"the 1e-09 seconds were over"}


def test_a_choice_that_is_cut_off_anywhere_ends_well(task, monkeypatch):
    for count in range(1, 14):
        clock = itertools.count()
        monkeypatch.setattr(choice.time, "perf_counter", lambda: next(clock))  # noqa: B023
        found = choice.choose(task, seconds=3.0 * count)
        assert found.skipped or len(found.trials) > 13
        assert found.chosen.max() < len(found.trials)


def test_kernels_that_do_not_fit_are_skipped(task, monkeypatch):
    monkeypatch.setattr(choice.features, "distance_bytes", lambda *_, **__: 10**15)
    found = choice.choose(task, seconds=1e6)
    assert len(found.trials) == 4
    assert all("its dense kernel takes about" in why for why in found.skipped.values())


@pytest.mark.parametrize(
    "settings",
    [
        presets.hop_settings(2),
        dataclasses.replace(presets.hop_settings(1), scaling="cosine", power=2),
        presets.RPSettings(power=1, kernel="gaussian", row_normalize=True),
        presets.RPSettings(power=3),
    ],
)
def test_a_candidate_is_the_similarity_of_its_settings(task, settings):
    here = Similarities(task).build(Candidate((settings,)))
    there = similarities.build(
        task.matrix,
        task.features,
        settings,
        num_train=40,
        adjacency=task.adjacency,
    ).similarity
    v = jnp.asarray(np.random.default_rng(0).normal(size=(len(task.targets), 3)))
    np.testing.assert_allclose(here(v), there(v), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("num_train", [10, 10**6])  # row blocks, a dense kernel
def test_a_centered_kernel_has_mean_zero_and_largest_eigenvalue_one(task, num_train):
    S = similarities.build(
        task.matrix,
        task.features,
        presets.hop_settings(1),
        num_train=num_train,
        adjacency=task.adjacency,
    ).similarity
    full = np.asarray(S(jnp.eye(len(task.targets))))
    np.testing.assert_allclose(full, full.T, atol=1e-12)
    np.testing.assert_allclose(full.mean(axis=0), 0, atol=1e-12)
    values = np.linalg.eigvalsh(full)
    assert values[0] > -1e-12
    assert values[-1] == pytest.approx(1, rel=0.05)


def test_a_centered_map_is_that_of_the_matrix():
    rng = np.random.default_rng(2)
    M = rng.normal(size=(9, 9))
    M = M + M.T
    H = np.eye(9) - 1 / 9
    v = jnp.asarray(rng.normal(size=(9, 2)))
    S = similarity.Centered(similarity.Dense(jnp.asarray(M)))
    np.testing.assert_allclose(S(v), H @ M @ H @ np.asarray(v), atol=1e-13)


def test_class_shares_are_means_of_the_training_targets():
    targets = np.array([[1.0, 0], [0, 1], [np.nan, 1], [5, 5]])
    train = np.array([[True, True, True, False], [False, True, False, False]])
    shares = rp_study.class_shares(targets, train)
    np.testing.assert_allclose(shares[:, 3], [[0.5, 2 / 3], [0, 1]])
    assert shares.shape == (2, 4, 2)


def test_the_record_scores_the_choice_of_each_split(data, found):
    record = auto_rp.run(data, seconds=1e6)
    json.loads(json_files.dumps(record))
    assert [row["similarity"] for row in record["splits"]] == [
        str(found.trials[number].candidate) for number in found.chosen
    ]
    assert sum(x["chosen_in"] for x in record["choice"]["trials"]) == 2
    assert record["val_mean"] == pytest.approx(100 * found.val.mean(), abs=1e-3)
    assert {"majority", "lp"} == set(record["baselines"])
    assert -1 <= record["choice"]["rank_correlation"] <= 1


def test_a_task_of_several_columns_has_no_alignment(data):
    labels = np.stack([data.labels == 0, data.labels == 1], axis=1).astype(float)
    labels[0] = np.nan
    several = data._replace(labels=labels, metric="roc_auc")
    task = auto_rp.make_task(several)
    found = choice.choose(task, seconds=1e-9)
    assert found.as_dict()["trials"][0]["alignment"] is None
    json_files.dumps(found.as_dict())


def test_hop_features_run_from_the_class_shares(data):
    settings = dataclasses.replace(presets.hop_settings(2), num_steps=50)
    record = rp_study.run(data, settings).record
    assert record["settings"]["hops"] == 2
    plain = dataclasses.replace(settings, center=False)
    assert rp_study.run(data, plain).record["test_mean"] != record["test_mean"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hops": -1, "kernel": "gaussian"}, "hops"),
        ({"hops": 2}, "needs a kernel"),
        ({"scaling": "rows"}, "scaling"),
    ],
)
def test_settings_of_hops_are_refused_by_name(changes, words):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(presets.RPSettings(), **changes)


def test_bad_input_is_refused_in_one_sentence(task, data):
    with pytest.raises(ValueError, match="seconds must be positive"):
        choice.choose(task, seconds=0.0)
    empty = task._replace(val=np.zeros_like(task.val))
    with pytest.raises(ValueError, match="split 0 has none"):
        choice.choose(empty, seconds=1.0)
    with pytest.raises(ValueError, match="adjacency matrix"):
        auto_rp.run(data, options=Options(max_bytes=1))


def test_an_adjacency_is_needed_for_hops(task):
    with pytest.raises(TypeError):
        similarities.build(
            task.matrix, task.features, presets.hop_settings(1), num_train=3
        )
    assert isinstance(graph.normalize(task.adjacency), type(task.adjacency))
