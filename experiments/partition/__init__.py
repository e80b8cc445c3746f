"""Communication of a sharded product, by the partition of the graph."""
