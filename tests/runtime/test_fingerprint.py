"""Fingerprints tell different callables and arrays apart, or refuse to."""

import dataclasses
import functools
import json
import os
import subprocess
import sys
from typing import NamedTuple

import generators
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from generators import (
    SIMILARITIES,
    adjacency,
    on_four_devices,
    split,
    targets,
    unchecked,
    world,
)

from gnnrp import metrics, types
from gnnrp.kernels import features
from gnnrp.models import gnn, objectives, training
from gnnrp.propagation import linear_maps, losses, similarity
from gnnrp.runtime.fingerprint import (
    IncomparableError,
    Structure,
    checksum,
    digest,
    fingerprint,
)
from gnnrp.runtime.options import Options


def test_functions_are_compared_by_qualified_name():
    assert fingerprint(metrics.accuracy) == "gnnrp.metrics.accuracy"
    assert fingerprint(jax.jit(metrics.accuracy)) == "gnnrp.metrics.accuracy"
    assert fingerprint(jax.nn.relu).endswith(".relu")
    assert fingerprint(len) == "builtins.len"


def test_arrays_are_compared_by_contents_type_and_shape():
    ones = np.ones(4)
    assert fingerprint(ones) == fingerprint(jnp.ones(4)) == digest(ones)
    others = (np.zeros(4), np.ones((2, 2)), ones.astype(np.float32))
    assert len({fingerprint(each) for each in (ones, *others)}) == 4


class Scale(NamedTuple):
    factor: float

    def __call__(self, v):
        return self.factor * v


@dataclasses.dataclass
class Shift:
    amount: float

    def score(self, scores, targets, mask):
        return metrics.accuracy(scores, targets, mask) + self.amount


class Plain:
    def __init__(self, amount):
        self.amount = amount

    def __call__(self, scores, targets, mask):
        return self.score(scores, targets, mask)

    def score(self, scores, targets, mask):
        return metrics.accuracy(scores, targets, mask) + self.amount


Plain.instance = Plain(1)
Plain.instance.__name__ = "instance"


def scaled(scale):
    return lambda v, *, shift=0: v * scale + shift


@functools.wraps(metrics.accuracy)
def in_disguise(scores, targets, mask):
    return -metrics.accuracy(scores, targets, mask)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: functools.partial(metrics.accuracy, mask=np.full(3, x)),
        lambda x: {"rows": [x, (x, None)]},
        Scale,
        lambda x: Shift(x).score,
        lambda x: gnn.GCN(3, dropout=x / 10),
        lambda x: gnn.GCN(3, activation_fn=functools.partial(jax.nn.elu, alpha=x)),
        lambda x: similarity.Power(adjacency(x), 2),
        lambda x: similarity.Power(adjacency(0), x),
        lambda x: similarity.LazyWalk(adjacency(0), 2, x / 10),
        lambda x: features.build(np.eye(4), "gaussian", gamma=x),
        lambda x: linear_maps.as_pytree(Scale(x)),
        lambda x: Structure(similarity.Power(adjacency(0), x)),
    ],
)
def test_equal_values_have_one_fingerprint_and_others_another(make):
    assert fingerprint(make(1)) == fingerprint(make(1)) != fingerprint(make(2))
    json.dumps(fingerprint(make(1)))


HIDING = Shift(1)
HIDING.unseen = 2


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda v: v, r"a lambda \(<lambda>\)"),
        (scaled(2), r"a lambda \(scaled.<locals>.<lambda>\)"),
        (in_disguise, r"a closure|a function of a script"),
        (Plain(1), "an object of Plain"),
        (Plain(1).score, "an object of Plain"),
        (Plain.instance, "an object of Plain"),
        (HIDING.score, "an object of Shift"),
        (functools.partial(scaled(2), shift=1), "a lambda"),
        (gnn.GCN(3, activation_fn=scaled(2)), "a lambda"),
        (optax.adam(0.1), "a closure"),
        (objectives.sgd(0.1), "a closure"),
        ({"deep": [scaled(2)]}, "a lambda"),
        (np.array([1, None]), "an object of ndarray"),
    ],
)
def test_what_cannot_be_compared_is_refused(value, reason):
    with pytest.raises(IncomparableError, match=reason):
        fingerprint(value)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_every_similarity_but_a_closure_has_a_fingerprint(name):
    made = linear_maps.as_pytree(SIMILARITIES[name].make(world(0)))
    if name == "function":
        with pytest.raises(IncomparableError):
            fingerprint(made)
    else:
        assert "0x" not in json.dumps(fingerprint(made))


def test_every_process_makes_the_same_fingerprint(tmp_path):
    script = tmp_path / "printed.py"
    script.write_text(
        "import functools, json, numpy as np\n"
        "from gnnrp import metrics\n"
        "from gnnrp.runtime import fingerprint\n"
        "from gnnrp.models import gnn\n"
        "def own(x):\n    return x\n"
        "value = [gnn.GCN(3), functools.partial(metrics.accuracy, mask=np.ones(3))]\n"
        "print(json.dumps(fingerprint.fingerprint(value)))\n"
        "try:\n    fingerprint.fingerprint(own)\n"
        "except TypeError as error:\n    print(error)\n"
    )
    printed = {
        subprocess.run(
            [sys.executable, script],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(printed) == 1
    assert printed.pop().endswith("a function of a script (own)\n")


# Drivers


LIMIT = 0.5


def above(limit):
    return lambda scores, targets, mask: metrics.accuracy(scores, targets, mask) - limit


METRICS = {
    "a bound method of a plain object": lambda x: Plain(x).score,
    "a plain callable object": Plain,
    "a lambda that reads a global": lambda _: (
        lambda scores, y, mask: metrics.accuracy(scores, y, mask) - LIMIT
    ),
    "a closure": above,
}


def propagated(folder=None, **change):
    settings = {"step_size": 0.5, "num_steps": 6, "metric": metrics.accuracy}
    S = change.pop("similarity", similarity.Power(adjacency(0), 2))
    settings |= {"method": "iterate", "folder": folder} | change
    return generators.run(S, targets(0), split(0), **settings)


@pytest.mark.parametrize("make", METRICS.values(), ids=list(METRICS))
def test_a_metric_that_cannot_be_compared_needs_a_name_in_a_folder(make, tmp_path):
    message = (
        r"^metric is or holds an? .*, which cannot be compared with that of an earlier "
        r"run in the folder; use .*, or name it by metadata=\{\"metric\": \"...\"\}$"
    )
    with pytest.raises(TypeError, match=message):
        propagated(tmp_path / "run", metric=make(1))
    assert not (tmp_path / "run").exists()
    propagated(metric=make(1))
    named = {"metadata": {"metric": "mine 1"}}
    first = propagated(tmp_path / "run", metric=make(1), **named)
    again = propagated(tmp_path / "run", metric=make(1), **named)
    np.testing.assert_array_equal(again.predictions, first.predictions)
    with pytest.raises(ValueError, match=r"of another run: metric was .*mine 1"):
        propagated(tmp_path / "run", metric=make(2), metadata={"metric": "mine 2"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("residual_fn", lambda y, f: y - f),
        ("similarity", lambda v: 2 * v),
        ("similarity", similarity.Power(lambda v: 2 * v, 2)),
    ],
)
def test_other_functions_of_a_run_need_a_name_too(name, value, tmp_path):
    with pytest.raises(TypeError, match=f'^{name} is or .*metadata={{"{name}"'):
        propagated(tmp_path, **{name: value})
    propagated(tmp_path, **{name: value}, metadata={name: "mine"})


def test_a_name_does_not_stand_in_for_a_function_that_can_be_compared(tmp_path):
    propagated(tmp_path, metadata={"metric": "mine"})
    with pytest.raises(ValueError, match=r"of another run: metric was .*accuracy"):
        propagated(tmp_path, metric=metrics.roc_auc, metadata={"metric": "mine"})


def test_a_sweep_names_its_functions(tmp_path):
    def run(folder, **change):
        settings = {"metric": metrics.accuracy, "powers": (1, 2), "num_steps": 3}
        settings |= {"step_sizes": (0.5,), "folder": folder} | change
        A = settings.pop("similarities", adjacency(0))
        return unchecked(generators.sweep_of, A, targets(0), split(0), **settings)

    functions = {
        "metric": above(0),
        "residual_fn": lambda y, f: losses.squared(y, f),
        "similarities": lambda v: 0.5 * v,
    }
    for name, value in functions.items():
        with pytest.raises(TypeError, match=f'^{name} is or .*metadata={{"{name}"'):
            run(tmp_path / name, **{name: value})
        run(tmp_path / name, **{name: value}, metadata={name: 1})
        with pytest.raises(ValueError, match=f"of another run: {name} was .*1"):
            run(tmp_path / name, **{name: value}, metadata={name: 2})


def test_training_names_its_optimizer_and_functions(tmp_path):
    Y = targets(0)
    masks = [jnp.asarray(mask) for mask in split(0)]
    data = training.Data(jnp.asarray(Y), adjacency(0), jnp.asarray(Y), *masks[:2])
    rule = training.Rule(
        gnn.GCN(3, 4, 2), objectives.sgd(0.1), metric_fn=metrics.accuracy
    )

    def run(folder, rule=rule, data=data, metadata=None):
        key = jax.random.key(0)
        options = Options(folder=folder, metadata=metadata or {})
        return training.run(rule, data, key, num_steps=2, options=options)

    with pytest.raises(TypeError, match=r'optimizer is or .*metadata={"optimizer"'):
        run(tmp_path / "a")
    run(None)
    named = {"optimizer": ["sgd", 0.1]}
    run(tmp_path / "a", metadata=named)
    with pytest.raises(ValueError, match="of another run: optimizer was"):
        run(tmp_path / "a", metadata={"optimizer": ["sgd", 0.2]})
    other = rule._replace(network=gnn.GCN(3, 4, 2, activation_fn=jax.nn.tanh))
    with pytest.raises(ValueError, match="of another run: network was"):
        run(tmp_path / "a", rule=other, metadata=named)
    others = {
        "loss_fn": {"rule": rule._replace(loss_fn=lambda *x: objectives.squared(*x))},
        "metric_fn": {"rule": rule._replace(metric_fn=above(0))},
        "network": {
            "rule": rule._replace(network=gnn.GCN(3, activation_fn=lambda z: z))
        },
        "matrix": {"data": data._replace(matrix=jax.tree_util.Partial(scaled(2)))},
    }
    for name, change in others.items():
        with pytest.raises(TypeError, match=f'{name} is or .*metadata={{"{name}"'):
            run(tmp_path / name, **change, metadata=named)


def test_masks_are_compared_whatever_library_made_them():
    masks = types.Split(*(jnp.asarray(mask) for mask in split(0)))
    assert digest(masks) == digest(split(0))


CHECKSUM = """
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from gnnrp.runtime.fingerprint import checksum

mesh = jax.make_mesh((4,), ("nodes",))
for dtype in ("float32", "float64", "int32", "bool"):
    x = (10 * np.random.default_rng(0).standard_normal((8, 3, 2))).astype(dtype)
    whole = checksum(jax.numpy.asarray(x))
    for spec in (PartitionSpec("nodes"), PartitionSpec()):
        shared = jax.device_put(x, NamedSharding(mesh, spec))
        assert checksum(shared) == whole, (dtype, spec)
    print(whole)
"""


def test_a_checksum_does_not_depend_on_the_devices_that_hold_an_array():
    assert len(set(on_four_devices(CHECKSUM).split())) == 4


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bool"])
def test_a_checksum_changes_with_any_number_and_any_place(dtype):
    x = np.random.default_rng(0).standard_normal((6, 4))
    x = np.maximum(0, 10 * x).astype(dtype)
    one_else = [x.copy() for _ in range(x.size)]
    for i, other in enumerate(one_else):
        other.flat[i] = other.flat[i] == 0
    several = (x[::-1], x[:, ::-1], ~x if dtype == "bool" else -x, np.roll(x, 1))
    found = [checksum(jnp.asarray(y)) for y in (x, *one_else, *several)]
    assert found[0] not in found[1:]
    assert found[0] == checksum(jnp.asarray(x.copy()))
