"""Example tables for `gnnrp fit`: customers who know each other, in three segments."""

import numpy as np

SEGMENTS = ("basic", "plus", "premium")
NUM_CUSTOMERS, NUM_EDGES, NUM_LABELS = 600, 3000, 150
SAME = 0.7  # share of the edges drawn within a segment
GAP = 0.1  # share of missing features


def make(
    num_customers: int = NUM_CUSTOMERS,
    num_edges: int = NUM_EDGES,
    num_labels: int = NUM_LABELS,
) -> dict[str, list[tuple[str, ...]]]:
    """Return rows of text of the tables edges, labels and features, headers first."""
    rng = np.random.default_rng(0)
    segment = rng.integers(len(SEGMENTS), size=num_customers)
    names = [f"customer-{i:03d}" for i in range(num_customers)]
    edges = [("source", "target", "weight")]
    seen = set()
    while len(edges) <= num_edges:
        a, b = rng.integers(num_customers, size=2)
        pair = min(a, b), max(a, b)
        keep = segment[a] == segment[b] or rng.random() > SAME
        if a != b and pair not in seen and keep:
            seen.add(pair)
            edges.append((names[a], names[b], f"{rng.gamma(2.0):.2f}"))
    labeled = rng.choice(num_customers, num_labels, replace=False)
    labels = [("customer", "segment")]
    labels += [(names[i], SEGMENTS[segment[i]]) for i in sorted(labeled)]
    features: list[tuple[str, ...]] = [("customer", "region", "age", "spending")]
    for i, name in enumerate(names):
        region = f"region {rng.choice((segment[i], rng.integers(5)))}"
        age = f"{rng.normal(40 + 4 * segment[i], 12):.0f}"
        spending = f"{rng.lognormal(3 + 0.4 * segment[i], 0.7):.2f}"
        gaps = rng.random(3) < GAP
        row = np.where(gaps, "", (region, age, spending)).tolist()
        features.append((name, *row))
    return {"edges": edges, "labels": labels, "features": features}
