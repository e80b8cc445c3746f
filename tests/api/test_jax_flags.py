"""Drivers under JAX's debugging flags: no NaN on purpose, no implicit ranks."""

import dataclasses

import generators
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gnnrp import ResidualPropagation, metrics
from gnnrp.datasets import sbm
from gnnrp.kernels import alignment, features, gntk
from gnnrp.kernels.features import low_rank
from gnnrp.kernels.ntk import empirical, stochastic
from gnnrp.models import gnn, objectives, training
from gnnrp.propagation import label, losses, similarity, solvers
from gnnrp.studies import gntk as gntk_study
from gnnrp.studies import ntk as ntk_study
from gnnrp.studies import presets
from gnnrp.studies import rp as rp_study

N, C = generators.N, generators.C


def small_graph():
    return sbm.generate(
        0, num_blocks=3, block_size=20, train_per_class=5, num_val=10, num_test=20
    )


def world():
    return generators.world(0).matrix


def split(*, val=True):
    found = generators.split(0)
    return found if val else found._replace(val=np.zeros_like(found.val))


def run(**settings):
    S = similarity.Power(world(), 2)
    arguments = {
        "step_size": 0.5,
        "num_steps": 5,
        "metric": metrics.accuracy,
        "split": split(),
    } | settings
    return generators.run(S, generators.targets(0), **arguments)


def fit(**settings):
    labels = np.argmax(generators.targets(0), axis=1)
    labels[::2] = -1
    given = {"power": 2, "step_size": 0.5, "num_steps": 5} | settings
    model = ResidualPropagation(**given).fit(generators.edges(0), labels)
    return model.predict_proba()


def train(**rule):
    x = generators.world(0).features
    given = training.Data(
        jnp.asarray(x),
        world(),
        jnp.asarray(generators.targets(0)),
        jnp.asarray(split().train),
        jnp.asarray(split().val),
    )
    network = gnn.GCN(C, width=4)
    rule = training.Rule(
        network, objectives.sgd(0.01, momentum=0.9), metric_fn=metrics.accuracy
    )
    return training.run(rule, given, jax.random.key(0), num_steps=3)


def tangent_kernel():
    x, network = jnp.asarray(generators.world(0).features), gnn.GCN(C, width=4)
    params = network.init(jax.random.key(0), x, world())

    def apply_fn(params, x):
        return network.apply(params, x, world())

    theta = empirical.ntk(apply_fn, params, x)
    product = empirical.Product(apply_fn, params, x)
    estimate = stochastic.trace(product, N, key=jax.random.key(1), num_probes=2)
    return theta, estimate


def feature_kernels():
    x = generators.world(0).features
    for name in features.KERNELS:
        kernel = features.build(x, name, normalized=False)
        jax.block_until_ready((kernel(jnp.ones((N, 2))), features.diagonal(kernel)))
    built = features.build(x)
    key = jax.random.key(0)
    low_rank.distinct(x)
    low_rank.fourier(x, gamma=0.1, num_features=400, key=key, normalized=False)
    low_rank.nystrom(x, num_landmarks=4, key=key, normalized=False)
    return alignment.alignment(built(jnp.eye(N)), world()(jnp.eye(N)), centered=True)


def fit_auto():
    labels = np.argmax(generators.targets(0), axis=1)
    labels[::2] = -1
    model = ResidualPropagation(similarity="auto", search_seconds=60)
    model.fit(generators.edges(0), labels, features=generators.world(0).features)
    return model.predict_proba()


def wide(method):
    more = {"num_features": 64} if method == "features" else {}
    settings = gntk_study.GNTKSettings(depths=(2,), num_steps=5, method=method, **more)
    return gntk_study.run(small_graph(), settings)


DRIVERS = {
    **{f"run, {name}": lambda name=name: run(method=name) for name in solvers.NAMES},
    "run without validation": lambda: run(split=split(val=False)),
    "run, roc_auc": lambda: run(metric=metrics.by_name("roc_auc")),
    "run, softmax": lambda: run(residual_fn=losses.softmax),
    "run, sigmoid": lambda: run(residual_fn=losses.sigmoid),
    "fit": fit,
    "fit by validation": lambda: fit(power=None, step_size=None, num_steps=None),
    "fit, softmax": lambda: fit(loss="softmax"),
    "fit, chosen similarity": fit_auto,
    "sweep": lambda: generators.sweep_of(
        world(),
        generators.targets(0),
        split(),
        powers=[1, 2],
        metric=metrics.accuracy,
        num_steps=3,
    ),
    "gntk": lambda: gntk.gcn(
        world(),
        gntk.gram(generators.world(0).features),
        gntk.Network(3, bias="after", bias_std=0.1),
    ),
    "train": train,
    "tangent kernel": tangent_kernel,
    "feature kernels": feature_kernels,
    "label propagation": lambda: label.propagate(world(), jnp.eye(N), num_iterations=2),
    "label limit": lambda: label.limit(world(), jnp.eye(N), alpha=0.9),
    "pipeline": lambda: rp_study.run(
        small_graph(), dataclasses.replace(presets.settings("sbm"), num_steps=3)
    ),
    "tracking": lambda: ntk_study.run(
        small_graph(),
        ntk_study.NTKSettings(num_steps=2, every=1, num_graphs=2, depth=3),
    ),
    "kernel limit": lambda: gntk_study.run(
        small_graph(), gntk_study.GNTKSettings(depths=(1, 2), num_steps=5)
    ),
    **{
        f"kernel limit, {method}": lambda method=method: wide(method)
        for method in ("blocks", "features")
    },
}
PURE = ("gntk", "label propagation", "label limit")
"""Drivers that leave ``jit`` to the caller."""
every_driver = pytest.mark.parametrize("driver", DRIVERS.values(), ids=list(DRIVERS))


@every_driver
def test_drivers_make_no_nan_and_promote_no_rank(driver):
    with jax.debug_nans(True), jax.numpy_rank_promotion("raise"):
        jax.block_until_ready(driver())


def test_scores_of_no_node_are_nan_under_debug_nans():
    with jax.debug_nans(True):
        trajectory = run(split=split(val=False))
    assert np.isnan(trajectory.val).all()
    assert np.isfinite(trajectory.test).all()
