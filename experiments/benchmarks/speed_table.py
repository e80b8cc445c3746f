"""Tables of docs/speed.md, and the first one of README.md, from the benchmark records.

python -m experiments.benchmarks.speed_table            # from the committed records
python -m experiments.benchmarks.speed_table FOLDER     # from your own
"""

import json
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"


def main() -> None:
    """Print the section."""
    print(section(Path(sys.argv[1]) if sys.argv[1:] else RESULTS))


def first(folder: Path) -> str:
    """Return the table of the product and of a step of RP, as Markdown."""
    return "\n".join(_beside(_record(folder, "spmm")))


def section(folder: Path) -> str:
    """Return all tables and sentences, as Markdown."""
    spmm, rp, scaling, gntk, ntk = (
        _record(folder, name) for name in ("spmm", "rp", "scaling", "gntk", "ntk")
    )
    return "\n".join([
        *_beside(spmm),
        "",
        *_whole(rp),
        "",
        *_wide(gntk),
        "",
        *_finite(ntk),
        "",
        _sentences(spmm, rp, scaling),
    ])


def _record(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / f"benchmark_{name}.json").read_text())


def _beside(record: dict[str, Any]) -> list[str]:
    product = record["products"]["arxiv"]
    hop, steps = product["milliseconds"], record["steps"]["milliseconds"]
    hop = {name: pair["median"] for name, pair in hop.items()}
    steps = {name: pair["median"] for name, pair in steps.items()}
    floor, held = product["floor_milliseconds"], record["steps"]["megabytes"]
    return [
        "| on ogbn-arxiv, ms | gnnrp | baselines in the same run |",
        "|---|---|---|",
        f"| adjacency times {product['columns']} columns, a hop of A^K | "
        f"{hop['gnnrp, inner hop']:.0f} | torch CSR {hop['torch CSR']:.0f}, scipy "
        f"{hop['scipy CSR']:.0f}, torch COO {hop['torch COO']:.0f}, "
        f"floor {floor:.1f} |",
        f"| the same, one call | {hop['gnnrp']:.0f} | in the original node order "
        f"{hop['gnnrp, natural order']:.0f} |",
        f"| a step of RP, K = {record['steps']['power']} | {steps['RP']:.0f} | the "
        f"same in torch COO {steps['RP, torch COO']:,.0f}, PyG LabelPropagation "
        f"{steps['PyG LabelPropagation']:,.0f}; a training step of a full-batch GCN in "
        f"flax {steps['GCN training']:,.0f}, torch "
        f"{steps['GCN training, torch']:,.0f}, PyG {steps['GCN training, PyG']:,.0f} |",
        f"| memory of that step, MB | {held['RP']:,.0f} | a training step of a "
        f"full-batch GCN {held['GCN training']:,.0f} |",
    ]


def _whole(record: dict[str, Any]) -> list[str]:
    rows = [
        f"| `gnnrp rp --dataset {name}` | {run['splits']} | {run['seconds']:.0f} s | "
        f"{run['peak_gigabytes']:.1f} GB |"
        for name, run in record["commands"].items()
    ]
    return [
        "| whole process, including import and compilation | splits | time | memory |",
        "|---|---|---|---|",
        *rows,
    ]


def _wide(record: dict[str, Any]) -> list[str]:
    two, step = record["two layers"], record["decoupled step"]
    block, large = record["block"], record["large"]
    two_ms, step_ms = (
        {name: pair["median"] for name, pair in each["milliseconds"].items()}
        for each in (two, step)
    )
    return [
        "| kernels of wide GCNs | gnnrp | baselines in the same run |",
        "|---|---|---|",
        f"| two layers on {two['dataset']}, {two['nodes']:,} nodes | "
        f"{two_ms['gnnrp']:,.0f} ms | neural-tangents "
        f"{two_ms['neural-tangents']:,.0f} ms |",
        f"| three layers on {large['dataset']}, {large['nodes']:,} nodes, in blocks, "
        f"one run | {large['seconds']:.0f} s, {large['peak_gigabytes']:.1f} GB | |",
        f"| {block['rows']} x {block['rows']} entries of two layers on "
        f"{block['dataset']}, by neighborhoods, one run | {block['seconds']:.1f} s | "
        f"the whole kernel would take {block['whole_kernel_gigabytes']:.0f} GB |",
        f"| a step of RP along a decoupled GNN's kernel on {step['dataset']}, "
        f"K = {step['power']} | {step_ms['decoupled']:.0f} ms | along A^K "
        f"{step_ms['RP']:.0f} ms |",
    ]


def _finite(record: dict[str, Any]) -> list[str]:
    kernel, large, steps = (record[name] for name in ("kernel", "large", "training"))
    ms = {name: pair["median"] for name, pair in kernel["milliseconds"].items()}
    rates, deep = steps["steps_per_second"], kernel["three layers"]
    others = ", ".join(
        f"{name.removesuffix(', dense features')} {rate:,.0f}"
        for name, rate in rates.items()
        if name != "gnnrp"
    )
    return [
        "| GCNs of width 16 | gnnrp | baselines in the same run |",
        "|---|---|---|",
        f"| tangent kernel of the sum of logits on {kernel['dataset']}, "
        f"{kernel['nodes']:,} nodes | {ms['structured']:.0f} ms, and "
        f"{ms['Gram matrix of the inputs']:.0f} ms once per graph | our Jacobian "
        f"contraction {ms['Jacobian contraction']:,.0f} ms, neural-tangents "
        f"{ms['neural-tangents']:,.0f} ms |",
        f"| the same, three layers | {deep['structured']:.1f} s | our Jacobian "
        f"contraction {deep['Jacobian']:.1f} s |",
        f"| trace kernel on {large['dataset']}, {large['nodes']:,} nodes, one run | "
        f"{large['seconds']:.0f} s, {large['peak_gigabytes']:.1f} GB | |",
        f"| training on {steps['dataset']}, sparse features, steps per second | "
        f"{rates['gnnrp']:,.0f} | dense features: {others} |",
    ]


def _sentences(
    spmm: dict[str, Any], rp: dict[str, Any], scaling: dict[str, Any]
) -> str:
    rules = spmm["rules"]["ratio_to_product"]
    one, all_powers = rp["sweep"], rp["grid"]
    race, largest = rp["time to accuracy"], scaling["sizes"][-1]
    powers = all_powers["powers"]
    return (
        f"- Reverse mode, forward mode and `vmap` take {rules['reverse mode']:.2f}, "
        f"{rules['forward mode']:.2f} and {rules['vmap']:.2f} times as\n"
        f"  long as the product.\n"
        f"- A sweep over all {len(one['step sizes'])} step sizes of the paper's grid, "
        f"100 steps each, takes {one['products']:.0f}\n"
        f"  products and {one['seconds']:.0f} s on ogbn-arxiv. With K = {powers[0]} to "
        f"{powers[-1]}, it takes {all_powers['seconds']:.0f} s.\n"
        f"- To reach {race['val']:.1f} percent on the validation nodes of "
        f"{race['dataset'].capitalize()}, RP takes {race['RP']['seconds']:.2f} s for\n"
        f"  all of its published steps, and a GCN takes {race['GCN']['seconds']:.2f} s "
        f"({race['GCN']['epochs']} epochs), both compiled.\n"
        f"- On a random graph of {largest['nodes']:,} nodes and "
        f"{largest['entries']:,} entries, a product with\n"
        f"  {scaling['columns']} columns takes {largest['median']:.1f} s, and "
        f"{largest['rp_steps']} steps with K = 8 take "
        f"{largest['rp_seconds']:.0f} s and {scaling['peak_gigabytes']:.1f} GB.\n"
        f"- The time of a product grows as entries^{scaling['exponent']:.2f} from "
        f"{scaling['sizes'][0]['entries']:,} entries on, and\n"
        f"  as entries^{scaling['exponent beyond the cache']:.2f} for dense sides "
        f"larger than 32 MiB."
    )


if __name__ == "__main__":
    main()
