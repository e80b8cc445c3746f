"""Train an MLP and apply Correct and Smooth, as a baseline of ``beyond``.

Source: Huang et al. 2021 (arXiv 2010.13993), with the plain features, 50 iterations of
both steps and the automatic scale. Both weights α are chosen on the validation nodes.
"""

import functools
import itertools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import runner
from experiments.paper import trained
from gnnrp import metrics, sparse
from gnnrp.propagation import correct_and_smooth
from gnnrp.studies import records
from gnnrp.types import MetricFn

ALPHAS = (0.5, 0.8, 0.95)


def run(
    learned: trained.Subject,
    recipe: trained.Recipe,
    walk: sparse.Matrix,
    *,
    seed: int,
    num_epochs: int = trained.EPOCHS,
    progress: runner.Progress = runner.silent,
) -> dict[str, Any]:
    """Return validation and test scores of each network, in percent.

    Args:
        learned: the dataset with a mask per network.
        recipe: of the MLP.
        walk: D^-1/2 W D^-1/2.
        seed: of weights and dropout.
        num_epochs: maximum number of epochs.
        progress: callback for each network.
    """
    data = learned.data
    how = trained.rule(recipe, data.targets.shape[1], learned.metric)
    keys = jax.random.split(jax.random.key(seed), len(learned.test))
    found = trained.fit(how, learned, keys, num_epochs, progress)
    metric_fn: MetricFn = metrics.by_name(learned.metric)
    score = jax.jit(functools.partial(_score, metric_fn=metric_fn))
    best = []
    for i, test in enumerate(learned.test):
        params = jax.tree.map(operator.itemgetter(i), found.params)
        logits: Any = how.network.apply(params, data.x, data.matrix)
        assert data.val is not None
        masks = data.train[i], data.val[i], test
        scores = [
            (*score(walk, logits, data.targets, masks, weights), weights)
            for weights in itertools.product(ALPHAS, ALPHAS)
        ]
        best.append(max(scores, key=operator.itemgetter(0)))
    val, test_scores = (np.asarray([float(row[k]) for row in best]) for k in (0, 1))
    return {
        **records.summary(val, test_scores),
        "num_seeds": len(best),
        "alphas": [list(row[2]) for row in best],
    }


def _score(walk, logits, targets, masks, alphas, *, metric_fn):
    """Return the metric on validation and test nodes."""
    train, val, test = masks
    of_two = targets.shape[1] == 1  # one column for two classes
    if of_two:
        p = jax.nn.sigmoid(logits)
        probabilities = jnp.concatenate([1 - p, p], axis=1)
        known = jnp.concatenate([1 - targets, targets], axis=1)
    else:
        probabilities, known = jax.nn.softmax(logits), targets
    settings = walk, known, train
    first, second = alphas
    corrected = _apply(correct_and_smooth.correct, probabilities, *settings, first)
    end = _apply(correct_and_smooth.smooth, corrected, *settings, second)
    end = end[:, 1:] if of_two else end
    return metric_fn(end, targets, val), metric_fn(end, targets, test)


def _apply(step, probabilities, walk, known, train, alpha):
    return step(walk, probabilities, known, train, alpha=alpha)
