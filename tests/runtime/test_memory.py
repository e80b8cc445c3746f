"""How much memory there is, and that what does not fit is refused in one sentence."""

import dataclasses
import re

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gnnrp import (
    ResidualPropagation,
    cli,
    datasets,
    graph,
    metrics,
    sparse,
)
from gnnrp.datasets import sbm
from gnnrp.kernels import features
from gnnrp.kernels.features import low_rank
from gnnrp.models import gnn, objectives, training
from gnnrp.propagation import Exact, Steps, krylov, losses, similarity, solvers
from gnnrp.propagation.problem import make_problem
from gnnrp.propagation.sizes import sizes_of
from gnnrp.runtime import memory
from gnnrp.runtime.options import Options
from gnnrp.studies import baselines, gntk_kernels, presets, similarities, tables
from gnnrp.studies import gntk as gntk_study
from gnnrp.studies import ntk as ntk_study
from gnnrp.studies import rp as rp_study
from gnnrp.types import Split

MB, GB = 10**6, 10**9


@pytest.fixture(scope="module")
def data():
    return sbm.generate(1, block_size=40, train_per_class=5, num_val=50, num_test=80)


@pytest.fixture(scope="module")
def matrix(data):
    return sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))


@pytest.fixture
def nothing_held(monkeypatch):
    monkeypatch.setattr(memory, "process_bytes", lambda: 0)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GB", 8 * 10**9),
        ("500MB", 500 * MB),
        ("2GiB", 2**31),
        ("1.5 gb", 1_500_000_000),
        (" 3 TiB", 3 * 2**40),
        ("64000kb", 64_000_000),
        ("1234567", 1234567),
        ("12000000B", 12_000_000),
        ("1e9", GB),
        ("8E9", 8 * GB),
        ("2.5e+9", 2_500_000_000),
        ("1e3 MB", GB),
    ],
)
def test_sizes_are_read_in_units_of_1000_and_1024(text, size):
    assert memory.parse(text) == size


@pytest.mark.parametrize(
    "text", ["", "GB", "8 gigs", "-1GB", "0", "8", "999kB", "1e-9", "1e99", "e9", "∞"]
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="a size must be like 8GB, 500MB, 2GiB or"):
        memory.parse(text)


def group_files(root, lines, files):
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("\n".join(lines))
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("lines", "files", "limit"),
    [
        (["0::/"], {"memory.max": "4000\n"}, 4000),
        (["0::/"], {"memory.max": "max\n"}, None),
        (
            ["0::/a/b"],
            {"memory.max": "9000", "a/memory.max": "3000", "a/b/memory.max": "max"},
            3000,
        ),
        (
            ["4:memory:/x", "0::/"],
            {"memory/memory.limit_in_bytes": "5000"},  # /x is only seen from outside
            5000,
        ),
        (
            ["4:cpu,memory:/x y"],
            {
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "memory/x y/memory.limit_in_bytes": "700",
            },
            700,
        ),
        (["4:memory:/"], {"memory/memory.limit_in_bytes": str(2**63 - 4096)}, None),
        (["3:cpu:/"], {"memory.max": "1"}, None),
        ([], {}, None),
    ],
)
def test_limits_of_containers_are_found_in_both_versions(tmp_path, lines, files, limit):
    group_files(tmp_path, lines, files)
    assert memory.container_memory(tmp_path) == limit
    assert memory.container_memory(tmp_path / "nowhere") is None


def test_the_smallest_limit_counts_less_what_is_held(monkeypatch):
    monkeypatch.setattr(memory, "process_bytes", lambda: 1000)
    monkeypatch.setattr(memory, "_physical", lambda: 9000)
    monkeypatch.setattr(memory, "container_memory", lambda: None)
    assert memory.room()[:3] == (8000, 9000, "of this machine")
    assert memory.room(5000)[:3] == (4000, 5000, "allowed")
    assert memory.room(500).left == 0
    monkeypatch.setattr(memory, "container_memory", lambda: 3000)
    assert memory.room(5000)[:3] == (2000, 3000, "of this container")


def test_a_device_with_memory_of_its_own_is_one_of_the_limits(monkeypatch):
    class Device:
        def memory_stats(self):
            return {"bytes_limit": 700, "bytes_in_use": 200}

    monkeypatch.setattr(jax, "local_devices", lambda: [Device()])
    assert memory.room()[:3] == (500, 700, "of the device")
    assert memory.room(400)[:3] == (200, 400, "allowed")


def test_a_refusal_names_the_limit_that_fits_unless_the_machine_has_less(monkeypatch):
    monkeypatch.setattr(memory, "process_bytes", lambda: 300 * MB)
    monkeypatch.setattr(memory, "container_memory", lambda: None)
    monkeypatch.setattr(memory, "_physical", lambda: 4 * GB)
    for needed, allowed in ((50 * MB, 320 * MB), (3 * GB, GB), (2 * GB, 100 * MB)):
        with pytest.raises(ValueError, match="take less, or raise the") as refusal:
            memory.check("it", needed, memory.room(allowed), "take less")
        raised = memory.parse(str(refusal.value).rsplit("raise the limit to ", 1)[1])
        assert raised < 1.1 * (needed + 300 * MB) + 100 * MB
        memory.check("it", needed, memory.room(raised), "take less")
    for allowed in (GB, None):
        with pytest.raises(ValueError, match=r"; take less$"):
            memory.check("it", 5 * GB, memory.room(allowed), "take less")


def test_where_no_limit_is_told_all_fits(monkeypatch):
    monkeypatch.setattr(memory, "_physical", lambda: None)
    monkeypatch.setattr(memory, "container_memory", lambda: None)
    memory.check("it", 10**15, memory.room(), "")


def test_this_process_holds_something_and_the_machine_more():
    assert 10 * MB < memory.process_bytes() < memory.room().limit


def run(data, matrix, *, splits=1, **more):
    split = type(data.splits)(*(np.tile(part, (splits, 1)) for part in data.splits))
    settings = {"step_size": 0.5, "num_steps": 20, "metric": metrics.accuracy} | more
    S, y = similarity.Power(matrix, 2), datasets.targets(data)
    return generators.run(S, y, split, **settings)


def needed(data, matrix, method, num_steps=20):
    problem = make_problem(datasets.targets(data), data.splits)
    S = similarity.Power(matrix, 2)
    return (
        solvers
        .by_name(method)
        .cost(sizes_of(problem, S, Steps(1.0, num_steps)))
        .num_bytes
    )


@pytest.mark.usefixtures("nothing_held")
@pytest.mark.parametrize("method", ["exact", "krylov", "iterate"])
def test_a_method_asked_for_that_does_not_fit_is_refused(data, matrix, method):
    size = needed(data, matrix, method)
    with pytest.raises(
        ValueError,
        match=f"solver '{method}' on 200 nodes takes about .* MB and 1.0 MB are left "
        r"of the 1.0 MB allowed; take float32, or raise the limit to [\d.]+ MB$",
    ):
        run(data, matrix, method=method, max_bytes=MB)
    found = run(data, matrix, method=method, max_bytes=size)
    assert found.report.solver == method


@pytest.mark.usefixtures("nothing_held")
def test_a_refusal_names_the_methods_that_fit(data, matrix, monkeypatch):
    monkeypatch.setattr(
        Exact,
        "cost",
        lambda *_: solvers.Cost(sum(data.splits.train[0]), 3 * 10**9),
    )
    with pytest.raises(
        ValueError,
        match=r"solver 'exact' on 200 nodes takes about 3.0 GB and 2.0 GB are left of "
        r"the 2.0 GB allowed; take the solver 'krylov', about .* or the solver 'iterat",
    ):
        run(data, matrix, method="exact", max_bytes=2 * 10**9)


@pytest.mark.usefixtures("nothing_held")
def test_a_refusal_of_several_splits_advises_one(data, matrix):
    with pytest.raises(ValueError, match="take one split at a time or float32, or"):
        run(data, matrix, splits=3, max_bytes=MB)
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        single = sparse.prepare(graph.normalized_adjacency(data.edges, data.num_nodes))
        with pytest.raises(ValueError, match="take a smaller graph, or raise"):
            run(data, single, max_bytes=MB, residual_fn=losses.softmax)


@pytest.mark.usefixtures("nothing_held")
def test_auto_leaves_out_what_does_not_fit_and_says_so(data, matrix, monkeypatch):
    plain = run(data, matrix)
    assert plain.report.solver == "exact"
    assert memory.LACK not in plain.report.reason
    monkeypatch.setattr(
        Exact,
        "cost",
        lambda *_: solvers.Cost(sum(data.splits.train[0]), 3 * 10**9),
    )
    found = run(data, matrix, max_bytes=2 * 10**9)
    assert found.report.solver == "iterate"
    assert found.report.reason.startswith("fewest columns through S: krylov 105, iter")
    assert found.report.reason.endswith(
        "; for lack of memory not exact, which takes about 3.0 GB and 2.0 GB are left "
        "of the 2.0 GB allowed"
    )
    np.testing.assert_allclose(found.val, plain.val)


@pytest.mark.usefixtures("nothing_held")
def test_the_krylov_space_takes_what_there_is(data, matrix):
    problem = make_problem(datasets.targets(data), data.splits)
    sizes = sizes_of(problem, matrix, Steps(1.0, 100))
    sizes = sizes._replace(num_nodes=10**6, num_all_nodes=10**6)
    of_vector = 10**6 * sizes.num_classes * sizes.itemsize
    for number in (20, 40):
        room = memory.room(krylov.peak_bytes(sizes, number))
        assert number / 2 <= krylov.vector_capacity(sizes, room) <= number
    most = krylov.vector_capacity(sizes, memory.Room(2**50, 2**50, ""))
    assert most == 2**31 // of_vector


def built(data, matrix, num_train, max_bytes):
    settings = presets.settings("sbm")
    x = data.features.astype(np.float64)
    room = memory.room(max_bytes)
    return similarities.build(matrix, x, settings, num_train=num_train, room=room)


@pytest.mark.usefixtures("nothing_held")
def test_a_dense_kernel_takes_half_of_what_there_is_at_most(data, matrix):
    size = features.matrix_bytes(data.num_nodes, itemsize=8)
    S, why = built(data, matrix, 10**6, 2 * size)
    assert isinstance(S.inner, similarity.Dense)
    assert why == "held densely, for many products"
    S, why = built(data, matrix, 10**6, 2 * size - 2)
    assert isinstance(S.inner, features.FeatureKernel)
    assert re.fullmatch(
        "in row blocks at each product; for lack of memory not held densely: it takes "
        "about .* are left of the .* allowed",
        why,
    )
    S, why = built(data, matrix, 10, 2 * size)
    assert isinstance(S.inner, features.FeatureKernel)
    assert why == "in row blocks at each product"


@pytest.mark.usefixtures("nothing_held")
def test_distinct_rows_that_do_not_fit_give_way_to_blocks(data, matrix, monkeypatch):
    few = data._replace(features=data.features[np.arange(data.num_nodes) % 7])
    S, why = built(few, matrix, 10, 10**9)
    assert isinstance(S.inner, low_rank.Distinct)
    assert why == "of 7 distinct rows"
    monkeypatch.setattr(low_rank, "distinct_bytes", lambda *_, **__: 10**12)
    S, why = built(few, matrix, 10, 10**9)
    assert isinstance(S.inner, features.FeatureKernel)
    assert "for lack of memory not distinct rows: it takes about" in why


@pytest.mark.usefixtures("nothing_held")
def test_what_memory_decided_is_a_warning_of_the_table(data, monkeypatch):
    settings = dataclasses.replace(presets.settings("sbm"), num_steps=5, step_size=1.0)
    record = rp_study.run(data, settings).record
    assert record["report"]["kernel"] == "in row blocks at each product"
    assert tables.warnings(record, data) == []
    monkeypatch.setattr(
        Exact,
        "cost",
        lambda *_: solvers.Cost(sum(data.splits.train[0]), 3 * 10**9),
    )
    record = rp_study.run(data, settings, options=Options(max_bytes=2 * 10**9)).record
    (told,) = tables.warnings(record, data)
    assert told.startswith("steps: fewest columns through S: krylov")
    assert "for lack of memory not exact" in told


@pytest.mark.usefixtures("nothing_held")
def test_label_propagation_that_does_not_fit_is_refused_before_rp_runs(data):
    with pytest.raises(
        ValueError,
        match=r"label propagation of 1 split\(s\) on 200 nodes takes about .* MB and "
        "1.0 MB are left of the 1.0 MB allowed; take a smaller graph, or raise the ",
    ):
        rp_study.run(data, presets.settings("sbm"), options=Options(max_bytes=MB))
    splits = type(data.splits)(*(np.tile(part, (3, 1)) for part in data.splits))
    with pytest.raises(ValueError, match="take one split at a time, or raise the"):
        baselines.check_memory(datasets.targets(data), splits, MB)


@pytest.mark.usefixtures("nothing_held")
def test_a_gntk_that_does_not_fit_is_refused(data):
    exact = gntk_study.GNTKSettings(method="exact")
    with pytest.raises(
        ValueError,
        match="the GNTK of 200 nodes takes about .* MB and 1.0 MB are left of the 1.0 "
        r"MB allowed; take float32, a smaller graph, or RP \(gnnrp rp\), or raise the ",
    ):
        gntk_study.run(data, exact, options=Options(max_bytes=MB))
    with (
        jax.enable_x64(False),
        pytest.raises(ValueError, match="allowed; take a smaller graph, or RP"),
    ):
        gntk_kernels.check_memory(data, exact, "exact", Options(max_bytes=MB))
    with pytest.raises(ValueError, match="random features of 200 nodes takes about"):
        gntk_study.run(data, gntk_study.GNTKSettings(), options=Options(max_bytes=MB))


@pytest.mark.usefixtures("nothing_held")
def test_a_gntk_that_does_not_fit_is_refused_with_a_method_that_does(data, monkeypatch):
    size = gntk_kernels.feature_bytes(data, gntk_study.GNTKSettings(depths=(1, 2)), 8)
    for name in ("exact", "column"):
        monkeypatch.setattr(gntk_kernels, f"{name}_bytes", lambda *_: 2 * size)
    for method in ("exact", "blocks"):
        settings = gntk_study.GNTKSettings(method=method, depths=(1, 2))
        with pytest.raises(ValueError, match="graph, method 'features', or RP"):
            gntk_study.run(data, settings, options=Options(max_bytes=size))
    settings = gntk_study.GNTKSettings(method="features", depths=(1, 2))
    gntk_kernels.check_memory(data, settings, "features", Options(max_bytes=size))


@pytest.mark.usefixtures("nothing_held")
def test_kernels_of_generated_graphs_that_do_not_fit_are_refused_with_fewer(data):
    settings, options = ntk_study.NTKSettings(depth=1), Options(max_bytes=MB)
    with pytest.raises(ValueError, match="take fewer graphs, a smaller graph, or est"):
        ntk_study.run(data, settings, options=options, family=lambda _: data)


@pytest.mark.usefixtures("nothing_held")
@pytest.mark.parametrize(
    ("depth", "remedy"), [(1, "a smaller graph"), (3, "a smaller depth, a smaller")]
)
def test_a_tracked_kernel_that_does_not_fit_is_refused(data, depth, remedy):
    settings, options = ntk_study.NTKSettings(depth=depth), Options(max_bytes=MB)
    with pytest.raises(
        ValueError,
        match="the kernel of 200 nodes on 11 graphs takes about .* MB and 1.0 MB are "
        f"left of the 1.0 MB allowed; take {remedy}",
    ):
        ntk_study.run(data, settings, options=options)


@pytest.mark.usefixtures("nothing_held")
@pytest.mark.parametrize(
    ("build", "told"),
    [
        (
            lambda x: low_rank.distinct(x, max_bytes=MB),
            "the kernel of 200 distinct rows .* take its row blocks",
        ),
        (
            lambda x: low_rank.fourier(
                x, gamma=1.0, num_features=20, key=jax.random.key(0), max_bytes=MB
            ),
            "the kernel of 200 nodes by 20 random features .* take a smaller num_",
        ),
        (
            lambda x: low_rank.nystrom(
                x, num_landmarks=20, key=jax.random.key(0), max_bytes=MB
            ),
            "the Nyström kernel of 200 nodes and 20 landmarks .* take a smaller num_la",
        ),
    ],
)
def test_low_rank_kernels_that_do_not_fit_are_refused(data, build, told):
    with pytest.raises(ValueError, match=told):
        build(data.features.astype(jnp.zeros(0).dtype))


@pytest.mark.parametrize("command", ["rp", "gntk", "ntk"])
def test_every_command_has_the_limit(command, capsys):
    assert cli.main([command, "--quiet", "--json", "--max-memory", "1MB"]) == 2
    told = capsys.readouterr().err
    assert "0.0 MB are left of the 1.0 MB allowed; take " in told
    assert len(told.strip().splitlines()) == 1
    assert cli.main([command, "--max-memory", "much"]) == 2
    assert "a size must be like 8GB" in capsys.readouterr().err


@pytest.mark.usefixtures("nothing_held")
@pytest.mark.parametrize(("width", "depth"), [(8000, 3), (40_000, 3), (2**31 - 1, 2)])
def test_a_tracked_network_that_does_not_fit_is_refused_with_a_width_that_does(
    data, width, depth
):
    settings = ntk_study.NTKSettings(width=width, depth=depth, num_graphs=2)
    with (
        jax.enable_x64(False),
        pytest.raises(ValueError, match=r"a GCN of width .* of the 1\.2 GB") as told,
    ):
        ntk_study.run(data, settings, options=Options(max_bytes=1200 * MB))
    most = int(re.search(r"at most ([\d,]*\d)", str(told.value))[1].replace(",", ""))
    rules = [
        training.Rule(gnn.GCN(5, m, depth), objectives.sgd(0.01, momentum=0.9))
        for m in (most, most + 100)
    ]
    shape = data.features.shape
    fits, exceeds = (training.peak_bytes(r, shape, itemsize=4) for r in rules)
    assert fits <= 1.2 * GB
    assert exceeds > 0.95 * 1.2 * GB  # a look may hold more than training does


def test_training_of_a_network_beyond_the_machine_is_refused():
    x, targets = jnp.ones((4, 3)), jnp.eye(4)
    given = training.Data(x, None, targets, jnp.ones(4, bool))
    rule = training.Rule(gnn.MLP(4, 2**31 - 1, 3), objectives.adam(0.1))
    with pytest.raises(ValueError, match=r"training of 1 network.* smaller width"):
        training.run(rule, given, jax.random.key(0), num_steps=1)


def many_classes(data, count):
    """As many classes as nodes."""
    none = np.zeros(count, bool)
    train = np.arange(count) % 2 == 0
    return data._replace(
        edges=np.array([[0, 1], [1, 2]]),
        num_nodes=count,
        features=None,
        labels=np.arange(count),
        num_classes=count,
        splits=type(data.splits)(train, ~train, none),
    )


@pytest.mark.usefixtures("nothing_held")
@pytest.mark.parametrize("run", ["rp", "gntk", "ntk"])
def test_targets_that_do_not_fit_are_refused_before_they_are_made(
    data, run, monkeypatch
):
    monkeypatch.setattr(datasets, "targets", lambda _: pytest.fail("allocated"))
    large, limit = many_classes(data, 25_000), Options(max_bytes=800 * MB)
    runs = {
        "rp": lambda: rp_study.run(large, presets.RPSettings(), options=limit),
        "gntk": lambda: gntk_study.run(
            large, gntk_study.GNTKSettings(), options=Options(max_bytes=800 * MB)
        ),
        "ntk": lambda: ntk_study.run(large, ntk_study.NTKSettings(), options=limit),
    }
    with pytest.raises(ValueError, match=r"of the 0\.8 GB allowed; take "):
        runs[run]()


@pytest.mark.usefixtures("nothing_held")
def test_targets_of_a_run_and_of_a_fit_are_refused_before_they_are_copied(monkeypatch):
    count = 20_000
    labels, path = np.arange(count), np.array([[0, 1], [1, 2]])
    monkeypatch.setattr(memory, "_physical", lambda: 800 * MB)
    with pytest.raises(ValueError, match="a fit of 20,000 nodes and 20,000 classes"):
        ResidualPropagation(1, 0.5, 2).fit(path, labels)
    targets = np.broadcast_to(np.float32(0), (count, count))  # takes no memory
    mask = np.arange(count) == 0
    with pytest.raises(ValueError, match="a run on 20,000 nodes and 20,000 columns"):
        generators.run(
            similarity.Power(lambda v: v, 1),
            targets,
            Split(mask, ~mask, ~mask),
            step_size=0.5,
            num_steps=1,
            metric=metrics.accuracy,
        )
