"""Training: what a step is, seeds, selection, resume, and agreement with theory."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from generators import C, N, adjacency, split, targets, unchecked, world

from gnnrp import metrics
from gnnrp.kernels.ntk import empirical, structured
from gnnrp.models import gnn, objectives, training
from gnnrp.propagation import exact, residual, similarity
from gnnrp.runtime.options import Options

KEY = jax.random.key(3)
Y = jnp.asarray(targets(0))
SPLIT = split(0)
X = jnp.asarray(world(0).features)
TRAIN = jnp.asarray(SPLIT.train)
GCN = gnn.GCN(C, 5, 2)
SGD = objectives.sgd(0.1, momentum=0.9, weight_decay=5e-4)


def data(val=False):
    chosen = jnp.asarray(SPLIT.val) if val else None
    return training.Data(X, adjacency(0), Y, TRAIN, chosen)


def leaves(tree):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def same(one, two):
    for a, b in zip(leaves(one), leaves(two), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.long
def test_losses_are_means_over_the_masked_nodes():
    rng = np.random.default_rng(0)
    f = jnp.asarray(rng.standard_normal((N, C)))
    p = np.exp(f) / np.exp(f).sum(1, keepdims=True)
    y, rows = np.asarray(Y), SPLIT.train
    expected = -np.log((p * y).sum(1))[rows].mean()
    assert float(objectives.cross_entropy(f, Y, TRAIN)) == pytest.approx(expected)
    expected = (np.sum((f - y) ** 2, axis=1) / 2)[rows].mean()
    assert float(objectives.squared(f, Y, TRAIN)) == pytest.approx(expected)
    unknown = y.copy()
    unknown[np.flatnonzero(rows)[0], 1] = np.nan
    q = 1 / (1 + np.exp(-np.asarray(f)))
    each = -np.log(np.where(unknown == 1, q, 1 - q))[rows]
    expected = each[np.isfinite(unknown[rows])].mean()
    found = objectives.binary(f, jnp.asarray(unknown), TRAIN)
    assert float(found) == pytest.approx(expected)
    slope = jax.grad(objectives.binary)(f, jnp.asarray(unknown), TRAIN)
    assert np.isfinite(slope).all()


def test_sgd_is_heavy_ball_descent_with_decay_of_weights_alone():
    params = {"W": jnp.ones((2, 2)), "b": jnp.ones(2)}
    state, slope = SGD.init(params), jax.tree.map(jnp.ones_like, params)
    velocity = {"W": 0.0, "b": 0.0}
    expected = {"W": 1.0, "b": 1.0}
    for _ in range(3):
        updates, state = SGD.update(slope, state, params)
        params = optax.apply_updates(params, updates)
        for name, decay in (("W", 5e-4), ("b", 0.0)):
            velocity[name] = 0.9 * velocity[name] + 1 + decay * expected[name]
            expected[name] -= 0.1 * velocity[name]
    for name in expected:
        np.testing.assert_allclose(params[name], expected[name], rtol=1e-12)


@pytest.mark.long
def test_a_run_is_its_steps():
    rule = training.Rule(GCN, SGD)
    state, losses = training.init(rule, data(), KEY), []
    for _ in range(7):
        state, loss = training.step(rule, state, data())
        losses.append(float(loss))
    seen = []
    found = training.run(
        rule,
        data(),
        KEY,
        num_steps=7,
        every=3,
        callback=lambda t, params: seen.append((t, params)),
    )
    np.testing.assert_allclose(found.losses, losses, rtol=1e-12)
    for a, b in zip(leaves(found.params), leaves(state.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    assert [t for t, _ in seen] == [0, 3, 6, 7]
    same(seen[-1][1], found.params)
    assert found.best_val is None
    assert found.diverged == -1


@pytest.mark.long
def test_stops_add_calls_and_leave_the_training_as_it_is(tmp_path):
    rule, seen = training.Rule(GCN, SGD), []

    def run(num_steps, folder=None, stops=()):
        options = Options(folder=folder, metadata={"optimizer": "sgd"})
        return training.run(
            rule, data(), KEY, num_steps=num_steps, every=10, options=options,
            callback=lambda t, _: seen.append(t), stops=stops,
        )  # fmt: skip

    plain, seen[:] = run(20), []
    same(run(20, stops=(5, 2, 30)).params, plain.params)
    assert seen == [0, 2, 5, 10, 20]
    seen.clear()
    run(2, tmp_path, (2, 5))
    same(run(20, tmp_path, (2, 5)).params, plain.params)
    assert seen == [0, 2, 5, 10, 20]


@pytest.mark.long
def test_seeds_by_vmap_are_single_runs():
    network = gnn.GCN(C, 5, 2, dropout=0.3)
    rule = training.Rule(network, SGD, metric_fn=metrics.accuracy)
    keys = jax.random.split(KEY, 3)
    many = training.run(rule, data(val=True), keys, num_steps=20, every=10)
    assert many.losses.shape == (20, 3)
    for i in (0, 2):
        one = training.run(rule, data(val=True), keys[i], num_steps=20, every=10)
        np.testing.assert_allclose(many.losses[:, i], one.losses, rtol=1e-9)
        assert many.best_val[i] == one.best_val
        assert many.best_step[i] == one.best_step
        for a, b in zip(leaves(many.params), leaves(one.params), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-8, atol=1e-10)


@pytest.mark.long
def test_each_seed_may_have_its_own_split():
    rule = training.Rule(GCN, SGD, metric_fn=metrics.accuracy)
    keys = jax.random.split(KEY, 2)
    some = [split(seed) for seed in (0, 1)]
    train, val = (
        jnp.asarray(np.stack([getattr(one, part) for one in some]))
        for part in ("train", "val")
    )
    both = training.run(
        rule, training.Data(X, adjacency(0), Y, train, val), keys, num_steps=20
    )
    alone = training.Data(X, adjacency(0), Y, train[1], val[1])
    one = training.run(rule, alone, keys[1], num_steps=20)
    np.testing.assert_allclose(both.losses[:, 1], one.losses, rtol=1e-9)
    assert both.best_step[1] == one.best_step
    three = training.Data(X, adjacency(0), Y, jnp.tile(train[:1], (3, 1)))
    with pytest.raises(ValueError, match=r"train mask must have shape \(2, 14\), got"):
        training.run(rule._replace(metric_fn=None), three, keys, num_steps=1)


@pytest.mark.long
@pytest.mark.parametrize("patience", [None, 4])
def test_validation_chooses_the_first_best_parameters(patience):
    rule = training.Rule(GCN, SGD, metric_fn=metrics.accuracy, patience=patience)
    path = []
    training.run(
        training.Rule(GCN, SGD), data(), KEY, num_steps=30, every=1,
        callback=lambda _, params: path.append(params),
    )  # fmt: skip
    scores, best = [], 0
    for t, params in enumerate(path):
        f = GCN.apply(params, X, adjacency(0))
        scores.append(float(metrics.accuracy(f, Y, jnp.asarray(SPLIT.val))))
        if patience is not None and t - best > patience:
            break
        best = t if scores[t] > scores[best] else best
    found = training.run(rule, data(val=True), KEY, num_steps=30, every=7)
    assert int(found.best_step) == best
    assert float(found.best_val) == scores[best]
    for a, b in zip(leaves(found.params), leaves(path[best]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    if patience is not None:
        assert len(found.losses) < 30


@pytest.mark.long
def test_a_resumed_run_is_bitwise_the_uninterrupted_one(tmp_path):
    network = gnn.GCN(C, 5, 2, dropout=0.3)
    rule = training.Rule(network, SGD, metric_fn=metrics.accuracy)
    metadata = {"every": 4, "sizes": (5, 2), "optimizer": "sgd"}

    def run(num_steps, folder):
        seen = []
        found = training.run(
            rule,
            data(val=True),
            jax.random.split(KEY, 2),
            num_steps=num_steps,
            every=4,
            callback=lambda t, _: seen.append(t),
            options=Options(folder=folder, metadata=metadata),
        )
        return found, seen

    whole, _ = run(16, None)
    _, seen = run(8, tmp_path / "a")
    assert seen == [0, 4, 8]
    rest, seen = run(16, tmp_path / "a")
    assert seen == [12, 16]
    same(rest.params, whole.params)
    same(rest.state.params, whole.state.params)
    np.testing.assert_array_equal(rest.losses, whole.losses[8:])
    np.testing.assert_array_equal(rest.best_step, whole.best_step)
    again, seen = run(16, tmp_path / "a")
    assert (seen, len(again.losses)) == ([], 0)
    same(again.params, whole.params)


@pytest.mark.long
def test_a_checkpoint_of_another_run_or_damaged_is_refused(tmp_path):
    rule = training.Rule(GCN, SGD)

    def run(metadata):
        options = Options(folder=tmp_path / "c", metadata=metadata)
        return training.run(rule, data(), KEY, num_steps=2, options=options)

    named = {"optimizer": "sgd"}
    run(named | {"width": 5})
    with pytest.raises(ValueError, match="of another run: width was 5, is 6"):
        run(named | {"width": 6})
    with pytest.raises(ValueError, match="another run: depth was None, is 2"):
        run(named | {"width": 5, "depth": 2})
    with pytest.raises(ValueError, match=r"another run: optimizer was .*sgd.*adam"):
        run({"width": 5, "optimizer": "adam"})
    for file in (tmp_path / "c").rglob("*"):
        if file.is_file():
            file.write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"the checkpoint .* is damaged \(.*; delete"):
        run(named | {"width": 5})


def undefined(scores, targets, mask):
    return jnp.sum(jnp.where(mask[:, None], scores - targets, 0)) * jnp.nan


@pytest.mark.long
def test_a_run_whose_scores_are_nan_resumes(tmp_path):
    rule = training.Rule(GCN, SGD, metric_fn=undefined)

    def run(num_steps, folder=tmp_path):
        options = Options(folder=folder, metadata={"optimizer": "sgd"})
        return training.run(
            rule, data(val=True), KEY, num_steps=num_steps, options=options
        )

    run(4)
    same(run(8).state.params, run(8, None).state.params)


@pytest.mark.long
def test_a_run_whose_matrix_is_a_plain_function_resumes(tmp_path):
    rule = training.Rule(GCN, SGD, metric_fn=metrics.accuracy)
    matrix = adjacency(0)
    inputs = data(val=True)._replace(matrix=lambda v: matrix(v))
    metadata = {"optimizer": "sgd", "matrix": "of the tests"}

    def run(num_steps, folder=tmp_path):
        options = Options(folder=folder, metadata=metadata)
        return training.run(rule, inputs, KEY, num_steps=num_steps, options=options)

    run(4)
    same(run(8).state.params, run(8, None).state.params)


@pytest.mark.long
def test_only_the_last_checkpoints_are_kept(tmp_path):
    rule = training.Rule(GCN, SGD)
    options = Options(
        folder=tmp_path, metadata={"optimizer": "sgd"}, checkpoint_seconds=0
    )
    training.run(rule, data(), KEY, num_steps=5, every=1, options=options)
    kept = sorted(int(p.name) for p in tmp_path.iterdir() if p.name.isdigit())
    assert kept == [4, 5]


@pytest.mark.long
def test_divergence_stops_the_run_and_names_the_step(tmp_path):
    rule = training.Rule(gnn.GCN(C, 5, 2), objectives.sgd(1e200))
    options = Options(folder=tmp_path / "d", metadata={"optimizer": "sgd"})
    found = training.run(rule, data(), KEY, num_steps=50, every=5, options=options)
    first = int(np.flatnonzero(~np.isfinite(found.losses))[0])
    assert int(found.diverged) == first
    assert len(found.losses) == 5
    assert [path.name for path in (tmp_path / "d").iterdir()] == [".lock"]


@pytest.mark.long
def test_a_linear_gnn_in_training_is_rp_step_by_step():
    K, eta = 2, 0.3
    network = gnn.SGC(C, power=K, use_bias=False)
    eye = jnp.eye(N)
    count = float(TRAIN.sum())
    rule = training.Rule(network, optax.sgd(eta * count), objectives.squared)
    learned = training.Data(eye, adjacency(0), Y, TRAIN)
    along = similarity.Power(adjacency(0), 2 * K)

    @jax.jit
    def both(state, rp):
        state, _ = training.step(rule, state, learned)
        rp = residual.step(rp, along, Y, TRAIN[:, None], step_size=eta)
        return state, rp, network.apply(state.params, eye, adjacency(0))

    state = training.init(rule, learned, KEY)
    state = state._replace(params=jax.tree.map(jnp.zeros_like, state.params))
    rp = residual.init(Y)
    for _ in range(25):
        state, rp, f = both(state, rp)
        np.testing.assert_allclose(f, rp.predictions, rtol=1e-10, atol=1e-12)


@pytest.mark.long
def test_gradient_descent_on_the_squared_loss_sums_over_the_training_nodes():
    eta, A = 0.05, np.asarray(adjacency(0)(jnp.eye(N)))
    rule = training.Rule(GCN, optax.sgd(eta * float(TRAIN.sum())), objectives.squared)
    params = training.init(rule, data(), KEY).params["params"]
    first, last = (
        {name: np.array(x) for name, x in params[f"layers_{number}"].items()}
        for number in (0, 1)
    )
    U, rows = A @ np.asarray(X), np.asarray(TRAIN)[:, None]
    for _ in range(4):
        Z = U @ first["weights"] + first["bias"]
        V = A @ np.maximum(Z, 0)
        error = np.where(rows, V @ last["weights"] + last["bias"] - np.asarray(Y), 0)
        slope = (A.T @ error @ last["weights"].T) * (Z > 0)
        for layer, inputs, change in ((first, U, slope), (last, V, error)):
            layer["weights"] -= eta * inputs.T @ change
            layer["bias"] -= eta * change.sum(axis=0)
    found = training.run(rule, data(), KEY, num_steps=4).params["params"]
    same_up_to_rounding(found, {"layers_0": first, "layers_1": last})


def same_up_to_rounding(one, two):
    for a, b in zip(leaves(one), leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.long
def test_each_step_moves_the_outputs_along_the_kernel_of_its_weights():
    network = gnn.GCN(1, 5, 2)
    learned = training.Data(X, adjacency(0), Y[:, :1], TRAIN)
    count, errors = float(TRAIN.sum()), []
    for eta in (2e-3, 1e-3):
        rule = training.Rule(network, optax.sgd(eta * count), objectives.squared)
        state = training.init(rule, learned, KEY)
        for _ in range(3):  # Θ_t, not Θ_0
            state, _ = training.step(rule, state, learned)
        f = network.apply(state.params, X, adjacency(0))
        layers = gnn.layers(network, state.params)
        theta = structured.gcn(layers, X, adjacency(0), reduce="trace")
        expected = residual.step(
            residual.init(learned.targets, f),
            similarity.Dense(theta),
            learned.targets,
            TRAIN[:, None],
            step_size=eta,
        ).predictions
        state, _ = training.step(rule, state, learned)
        moved = network.apply(state.params, X, adjacency(0)) - f
        gap = jnp.abs(f + moved - expected).max()
        errors.append(float(gap / jnp.abs(moved).max()))
    assert errors[0] < 0.02
    assert errors[1] / errors[0] == pytest.approx(0.5, abs=0.1)  # of first order


@pytest.mark.slow
def test_the_frozen_kernel_describes_training_better_as_width_grows():
    train = np.flatnonzero(SPLIT.train)
    y = Y[:, :1] * 2 - 1
    gaps = []
    for width in (32, 2048):
        network = gnn.GCN(1, width, 2, use_bias=False, parameterization="ntk")
        learned = training.Data(X, adjacency(0), y, TRAIN)
        params = network.init(jax.random.split(KEY)[0], X, adjacency(0))
        f_0 = np.asarray(network.apply(params, X, adjacency(0)))
        theta = np.asarray(
            empirical.ntk(
                lambda p, x, n=network: n.apply(p, x, adjacency(0)), params, X
            )
        )
        factors = exact.factorize(theta[:, train], train)
        eta = 1 / factors.eigenvalues[-1]
        rule = training.Rule(network, optax.sgd(eta * len(train)), objectives.squared)
        found = training.run(rule, learned, KEY, num_steps=60)
        f = np.asarray(network.apply(found.params, X, adjacency(0)))
        rest = np.asarray(y)[train] - f_0[train]
        expected = (
            f_0 + exact.trajectory(factors, rest, np.array([60]), step_size=eta)[0]
        )
        gaps.append(np.abs(f - expected).max() / np.abs(expected - f_0).max())
    assert gaps[1] < 0.02
    assert gaps[1] < gaps[0] / 3


@pytest.mark.long
def test_cross_entropy_conserves_the_sum_of_output_weights():
    rule = training.Rule(GCN, objectives.sgd(0.5, momentum=0.9))
    before = training.init(rule, data(), KEY)
    after = training.run(rule, data(), KEY, num_steps=200).params
    for part in ("weights", "bias"):
        start = before.params["params"]["layers_1"][part]
        end = after["params"]["layers_1"][part]
        assert float(jnp.abs(end - start).max()) > 0.1
        np.testing.assert_allclose(end.sum(-1), start.sum(-1), atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_steps": -1}, "num_steps must be at least 0, got -1"),
        ({"every": 0}, "every must be at least 1, got 0"),
    ],
)
def test_counts_out_of_range_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        training.run(training.Rule(GCN, SGD), data(), KEY, **{"num_steps": 1} | change)


def test_validation_needs_nodes_and_a_metric():
    with pytest.raises(ValueError, match="go together, and one of them is missing"):
        training.run(training.Rule(GCN, SGD), data(val=True), KEY, num_steps=1)
    rule = training.Rule(GCN, SGD, metric_fn=metrics.accuracy)
    with pytest.raises(ValueError, match="go together, and one of them is missing"):
        training.run(rule, data(), KEY, num_steps=1)


@pytest.mark.long
def test_adam_learns():
    rule = training.Rule(GCN, objectives.adam(0.05, weight_decay=1e-3))
    with jax.numpy_dtype_promotion("standard"):  # optax mixes types
        found = training.run(rule, data(), KEY, num_steps=100)
    assert found.losses[-1] < found.losses[0] / 3


def test_equal_settings_are_one_optimizer_so_that_training_compiles_once():
    assert objectives.sgd(0.1, momentum=0.9) is objectives.sgd(0.1, momentum=0.9)
    assert objectives.adam(0.1) is not objectives.adam(0.2)
    schedule = optax.constant_schedule(0.1)
    assert objectives.sgd(schedule).init is not None
    for change, message in (
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"learning_rate": 0.1, "momentum": 2.0}, "momentum must lie in"),
        ({"learning_rate": 0.1, "weight_decay": -1.0}, "weight_decay must lie in"),
    ):
        with pytest.raises(ValueError, match=message):
            objectives.sgd(**change)


@pytest.mark.long
@pytest.mark.parametrize("loss", [objectives.cross_entropy, objectives.squared])
def test_what_the_mask_leaves_out_plays_no_part(loss):
    outside = int(np.flatnonzero(~SPLIT.train)[0])
    f = jnp.ones((N, C)).at[outside].set(jnp.nan)
    slope = jax.grad(loss)(f, Y.at[outside].set(jnp.nan), TRAIN)
    expected = jax.grad(loss)(jnp.ones((N, C)), Y, TRAIN)
    np.testing.assert_array_equal(slope, expected)


@pytest.mark.parametrize("loss", [objectives.cross_entropy, objectives.binary])
def test_targets_of_another_shape_are_refused(loss):
    with pytest.raises(ValueError, match=r"targets must have shape \(14, 3\), as"):
        unchecked(loss, jnp.ones((N, C)), jnp.ones((N, 1)), TRAIN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": TRAIN[:5]}, r"train mask must have shape \(14,\), got \(5,\)"),
        ({"train": TRAIN[:, None]}, r"must have shape \(14,\), got \(14, 1\)"),
        ({"train": TRAIN & False}, "train mask must not be empty"),
        ({"targets": Y * 0}, "node 0 of the train mask has no target"),
    ],
)
def test_data_that_would_train_on_something_else_is_refused(change, message):
    mended = data()._replace(**change)
    with pytest.raises(ValueError, match=message):
        unchecked(training.run, training.Rule(GCN, SGD), mended, KEY, num_steps=1)
    rule = training.Rule(GCN, SGD, loss_fn="squared")
    with pytest.raises(TypeError, match="loss_fn must be a function, got 'squared'"):
        unchecked(training.run, rule, data(), KEY, num_steps=1)


@pytest.mark.long
def test_a_checkpoint_of_other_data_keys_or_shapes_is_refused(tmp_path):
    rule = training.Rule(GCN, SGD)

    def run(rule=rule, learned=None, key=KEY):
        learned = data() if learned is None else learned
        options = Options(folder=tmp_path / "c", metadata={"optimizer": "sgd"})
        return training.run(rule, learned, key, num_steps=2, options=options)

    run()
    with pytest.raises(ValueError, match="another run: data was"):
        run(key=jax.random.key(9))
    with pytest.raises(ValueError, match="another run: data was"):
        run(learned=data()._replace(train=~TRAIN))
    with pytest.raises(ValueError, match="another run: network was"):
        run(rule._replace(network=gnn.GCN(C, 6, 2)))
    with pytest.raises(ValueError, match="another run: state was"):
        run(rule._replace(optimizer=objectives.adam(0.1)))
    with pytest.raises(ValueError, match="another run: loss_fn was"):
        run(rule._replace(loss_fn=objectives.squared))


class Two(gnn.MLP):
    """A network that returns logits and hidden units."""

    def __call__(self, x, matrix=None, *, train=False):
        logits = super().__call__(x, matrix, train=train)
        return logits, x


class Fixed(gnn.MLP):
    """A network that learns nothing."""

    def __call__(self, x, matrix=None, *, train=False):
        del matrix, train
        return x[:, : self.num_classes]


class Counting(gnn.MLP):
    """A network with a counter among its parameters."""

    def setup(self):
        super().setup()
        self.count = self.param("count", lambda _: jnp.zeros((), jnp.int32))


class Averaging(nn.Module):
    """A network that keeps an average of its inputs, as BatchNorm does."""

    @nn.compact
    def __call__(self, x, matrix, *, train=False):
        mean = self.variable("batch_stats", "mean", lambda: x.mean(axis=0))
        if train:
            mean.value = 0.9 * mean.value + 0.1 * x.mean(axis=0)
        return nn.Dense(C, param_dtype=x.dtype)(matrix(x - mean.value))


class Switched(nn.Module):
    """A network that is called with a switch only."""

    @nn.compact
    def __call__(self, x, matrix, train):
        del train
        return nn.Dense(C, param_dtype=x.dtype)(matrix(x))


@pytest.mark.long
@pytest.mark.parametrize(
    ("network", "error", "sentence"),
    [
        (Averaging(), ValueError, "Averaging .* state in 'batch_stats'.* LayerNorm"),
        (Switched(), TypeError, r"takes \(x, matrix, train\); give .* defaults"),
        (Two(C), TypeError, "Two must return one array of logits .* got tuple"),
        (Fixed(C), ValueError, "Fixed must have parameters to train, got none"),
        (Counting(C), TypeError, "parameters of Counting must be floating, got int32"),
    ],
    ids=["state", "switch", "tuple", "no parameters", "counter"],
)
def test_networks_that_no_gradient_trains_are_refused(network, error, sentence):
    with pytest.raises(error, match=sentence):
        training.run(training.Rule(network, SGD), data(), KEY, num_steps=1)
