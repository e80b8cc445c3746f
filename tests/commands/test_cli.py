"""The command line as its users meet it: in a process, by its output and exit code."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys

import jax
import matplotlib as mpl
import miniatures
import pytest

from gnnrp import cli
from gnnrp.commands import flags
from gnnrp.studies import presets, tables

COMMAND = (sys.executable, "-m", "gnnrp.cli")


def gnnrp(*arguments, cwd, **more):
    environment = os.environ | more.pop("environment", {})
    environment |= {"GNNRP_DATA": "", "XDG_CACHE_HOME": f"{cwd}-cache"}
    environment["MPLCONFIGDIR"] = mpl.get_cachedir()  # or it looks for all fonts
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **more,
    )


def test_without_flags_a_table_and_a_figure_come_out(tmp_path):
    done = gnnrp("rp", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for row in ("majority class", "label propagation", "RP ", "RP with features"):
        assert row in done.stdout
    picture = (tmp_path / "rp-sbm.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["rp-sbm.png"]


def test_json_is_the_only_thing_on_standard_output_and_leaves_no_file(tmp_path):
    done = gnnrp("rp", "--json", "--num-steps", "50", cwd=tmp_path)
    record = json.loads(done.stdout)
    assert done.returncode == 0
    keys = {"dataset", "metric", "method", "settings", "splits", "baselines", "device"}
    keys |= {"val_mean", "val_std", "test_mean", "test_std", "seconds", "versions"}
    assert keys <= set(record)
    assert set(record["splits"][0]) == {"split", "val", "test", "best_step"}
    assert set(record["seconds"]) == {"load", "setup", "run"}
    assert (
        record["baselines"]["lp"]["test_mean"]
        > record["baselines"]["majority"]["test_mean"]
    )
    assert record["settings"]["num_steps"] == 50
    assert not list(tmp_path.iterdir())


def test_flags_override_the_published_settings(tmp_path):
    line = "--power 2 --kernel none --step-size 0.5 --num-steps 3 --precision float64"
    record = json.loads(gnnrp("rp", "--json", *line.split(), cwd=tmp_path).stdout)
    assert record["method"] == "rp"
    assert record["dtype"] == "float64"
    assert record["settings"]["power"] == 2
    assert record["report"]["num_steps"] == 3


@pytest.mark.filterwarnings("ignore:all nodes are predicted")  # random labels
def test_published_and_random_splits_are_a_flag(tmp_path, capsys, monkeypatch):
    miniatures.copurchase(tmp_path)
    monkeypatch.setenv("GNNRP_DATA", str(tmp_path))
    found = {}
    for kind in (None, "published", "random"):
        flag = [] if kind is None else ["--splits", kind]
        with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
            assert cli.main(["rp", "--dataset", "photo", "--json", *flag]) in {0, None}
        found[kind] = json.loads(capsys.readouterr().out)
    for kind in (None, "published"):
        assert found[kind]["split_kind"] == "published"
        assert found[kind]["splits"] == found[None]["splits"]
        assert found[kind]["published"]["test"] == 95.55
    assert found["random"]["split_kind"] == "random"
    assert len(found["random"]["splits"]) == 10
    assert found["random"]["published"] is None  # of another split
    assert "10 random split(s)" in tables.run_table(found["random"])
    assert "1 split(s)" in tables.run_table(found[None])


def test_hops_replace_the_published_settings(tmp_path):
    done = gnnrp("rp", "--hops", "2", "--gamma", "3", "--json", cwd=tmp_path)
    settings = json.loads(done.stdout)["settings"]
    expected = dataclasses.replace(presets.hop_settings(2), gamma=3.0)
    assert settings == dataclasses.asdict(expected)


def test_an_automatic_choice_prints_what_it_tried(tmp_path):
    arguments = ("rp", "--similarity", "auto", "--search-seconds", "0.001")
    done = gnnrp(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "RP, chosen similarity" in done.stdout
    assert "skipped: the 0.001 seconds were over" in done.stdout
    assert (tmp_path / "rp-sbm.png").read_bytes().startswith(b"\x89PNG")
    record = json.loads(gnnrp(*arguments, "--json", cwd=tmp_path).stdout)
    assert record["splits"][0]["similarity"] == "A"
    assert record["choice"]["trials"][0]["chosen_in"] == 1


def test_the_bandwidth_is_another_word_for_gamma(tmp_path):
    done = gnnrp("rp", "--json", "--num-steps", "2", "--bandwidth", "10", cwd=tmp_path)
    assert json.loads(done.stdout)["settings"]["gamma"] == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("rp --dataset coraa", "did you mean 'cora'"),
        ("rp --step-size -1", "step_size must be positive"),
        ("rp --step-size nan", "step_size must be positive"),
        ("rp --power -3", "power must be at least 0"),
        ("rp --num-steps 0", "num_steps must be at least 1"),
        ("rp --alpha 2", "alpha must lie in [0, 1]"),
        (
            "rp --gamma 1 --bandwidth 1",
            "--bandwidth applies to the Gaussian kernel only, and replaces --gamma",
        ),
        ("rp --kernel gausian", "got 'gausian'; did you mean 'gaussian'?"),
        ("rp --no-such-flag", "--no-such-flag; For full helptext, run gnnrp rp --help"),
        ("rp --powr 3", "--powr, 3; Perhaps you meant: --power INT"),
        ("rp --depths 2", "Unrecognized options: --depths, 2"),
        ("rp --power many", "Error parsing --power: invalid literal for int()"),
        ("rp --power 1.5", "invalid literal for int() with base 10: '1.5'"),
        ("rp --step-size 1,5", "--step-size: could not convert string to float: '1,5'"),
        ("rp --step-size", "'--step-size'"),
        ("rp --dataset cora --no-download --power -1", "power must be at least 0"),
        ("rp --split x", "Error parsing --split: invalid literal for int()"),
        ("rp --split 99", "split must be at most 0, got 99"),
        ("rp --seed -1", "seed must be at least 0"),
        ("rp --splits ten", "splits must be one of published, random, got 'ten'"),
        ("rp --splits published", "'sbm' has no published splits"),
        (
            "rp --dataset cora --splits random",
            "omit splits for its published",
        ),
        ("gntk --dataset tolokers --splits random", "has no random splits"),
        ("rp --max-memory 8XB", "--max-memory: a size must be like 8GB"),
        ("rp --max-memory 1MB", "take a smaller graph"),
        (f"rp --max-memory {10**18}GB", "--max-memory: a size must be like 8GB"),
        ("rp --patience 0", "patience must be at least 1"),
        ("rp --gamma nan", "gamma must be positive"),
        ("rp --bandwidth 0", "bandwidth must be positive"),
        ("rp --kernel none --gamma 1", "--gamma does not apply to the kernel none"),
        ("rp --kernel none --hops 1", "hops=1 needs a kernel"),
        ("rp --hops=-1", "hops must be at least 0"),
        ("rp --similarity auto --gamma 1", "--gamma does not apply to --similarity"),
        ("rp --similarity auto --folder f", "--folder does not apply"),
        ("rp --similarity auto --search-seconds 0", "search_seconds must be positive"),
        ("rp --search-seconds 5", "--search-seconds needs --similarity auto"),
        ("rp --shards nowhere --similarity auto", "auto does not apply to --shards"),
        ("rp --resume", "--resume needs --folder"),
        ("rp --checkpoint-seconds 5", "--checkpoint-seconds needs --folder"),
        ("rp --checkpoint-seconds nan --folder f", "checkpoint_seconds must be"),
        ("rp --hosts a,b", "need --shards"),
        ("rp --shards nowhere --split 0", "--split does not apply to --shards"),
        ("rp --shards nowhere --splits random", "--splits does not apply to --shards"),
        ("rp cora", "cora"),
        ("gntk --depths 0", "depth must be at least 1"),
        ("gntk --depths", "depths must not be empty"),
        ("gntk --depths x", "Error parsing --depths"),
        ("gntk --power 3", "Unrecognized options: --power, 3"),
        ("gntk --activation rleu", "'rleu'"),
        ("gntk --bias-std 2", "--bias-std needs a bias"),
        ("gntk --bias after --bias-std nan", "bias_std must be at least 0, got nan"),
        ("gntk --max-memory 10MB", "a smaller num_features, or a smaller graph"),
        ("ntk --depth 4", "depth must be at most 3"),
        ("ntk --dataset cora --no-download --width 0", "width must be at least 1"),
        ("ntk --momentum 2", "momentum must lie in [0, 1]"),
        ("ntk --num-graphs 1", "num_graphs must be at least 2"),
        ("ntk --reduce full", "reduce must be one of trace, sum, pseudo"),
        ("ntk --dataset coraa", "did you mean 'cora'"),
        ("datasets --dataset cora", "Unrecognized options: --dataset"),
        ("datasets --jsn", "Perhaps you meant: --json"),
        ("partition", "--parts"),
        ("partition --parts 0 --folder f", "parts must be at least 1"),
        ("partition --parts 9999 --folder f", "parts must be at most 2000"),
        (
            "partition --parts 2 --folder f --part-of gone",
            "gone cannot be read (No such",
        ),
        ("partition --parts 2 --folder f --dataset coraa", "did you mean 'cora'"),
        ("rp --loss softmax --method exact", "supports the squared loss only"),
        ("rp --plot nowhere/curve.png", "nowhere"),
        ("rp --dataset cora --no-download", "ind.cora"),
        ("", "Expected one of {rp, gntk, ntk"),
        ("--json", "Available subcommands: rp, gntk"),
        ("frobnicate", "Available subcommands: rp, gntk"),
        ("-- rp", "must start with a command, got '--'; leave it out"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    line, named, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GNNRP_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cli.main(line.split()) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert named in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_terminal_without_box_drawing_is_told_the_same(tmp_path):
    told = [
        gnnrp(
            *("rp", "--power", "x"),
            cwd=tmp_path,
            environment={"PYTHONIOENCODING": encoding},
        ).stderr
        for encoding in ("ascii", "utf8")
    ]
    assert told[0] == told[1]
    assert "--power" in told[0]
    assert "---" not in told[0]


def test_debug_shows_the_traceback(tmp_path):
    done = gnnrp("rp", "--step-size", "-1", "--debug", cwd=tmp_path)
    assert "Traceback" in done.stderr
    assert done.returncode != 0


def test_a_diverging_run_says_so_with_the_reason(tmp_path):
    flags = ["--kernel=none", "--power=1", "--step-size=50", "--num-steps=100"]
    done = gnnrp("rp", "--json", *flags, cwd=tmp_path)
    assert done.returncode == 0
    assert "grew" in done.stderr
    assert json.loads(done.stdout)["report"]["diverged"] == [True]


def test_every_command_has_help_which_needs_no_jax():
    code = """
import sys, gnnrp.cli
for name in sys.argv[1:]:
    try:
        gnnrp.cli.main([name, "--help"] if name else ["--help"])
    except SystemExit as stop:
        assert not stop.code, name
    assert "jax" not in sys.modules, name
"""
    line = [sys.executable, "-c", code, "", *flags.COMMANDS]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stdout.count("--debug") == len(flags.COMMANDS)
    for text in flags.COMMANDS.values():
        assert text.split(",")[0] in done.stdout


def test_each_setting_has_a_flag_with_the_help_of_its_docstring(capsys):
    with pytest.raises(SystemExit):
        cli.main(["rp", "--help"])
    printed = capsys.readouterr().out
    for field in dataclasses.fields(presets.RPSettings):
        flag = f"--{field.name.replace('_', '-')}"
        has_flag = f"{flag} " in printed or f"{flag}, " in printed
        assert has_flag == (field.name != "row_normalize")
    assert "K, number of hops per step" in printed


def test_interruption_leaves_no_file_and_exits_with_130(tmp_path):
    flags = ["rp", "--method", "iterate", "--num-steps", "10000000"]
    process = subprocess.Popen([*COMMAND, *flags], cwd=tmp_path, stderr=subprocess.PIPE)
    assert process.stderr
    line = process.stderr.readline()  # well inside the run: it tells how far it is
    assert line.startswith(b"residual propagation: ")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.decode().strip().splitlines()[-1] == "gnnrp: interrupted"
    assert not list(tmp_path.iterdir())


def test_a_reader_that_leaves_early_is_no_error(tmp_path):
    line = f"{' '.join(COMMAND)} datasets | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=tmp_path,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_datasets_are_listed_with_where_they_are(tmp_path):
    found = json.loads(gnnrp("datasets", "--json", cwd=tmp_path).stdout)["datasets"]
    rows = {row["name"]: row for row in found}
    assert len(rows) == 24
    assert rows["cora"] | {"present": False, "e": 10_556, "d": 1_433} == rows["cora"]
    assert rows["sbm"]["where"] == "generated"
    assert 0.4 < rows["sbm"]["homophily"] < 0.6


def test_a_damaged_set_is_listed_as_such(tmp_path):
    (tmp_path / "tolokers.npz").write_bytes(b"not an archive")
    done = gnnrp("datasets", "--json", "--data-dir", ".", cwd=tmp_path)
    rows = {row["name"]: row for row in json.loads(done.stdout)["datasets"]}
    assert done.returncode == 0
    assert rows["tolokers"]["where"].startswith("not readable: tolokers.npz")


@pytest.mark.parametrize(
    ("name", "reason"), [("nowhere", "does not exist"), ("file", "is a file; name")]
)
def test_a_data_folder_that_is_none_is_told_once(name, reason, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["datasets", "--data-dir", str(tmp_path / name)]) == 2
    printed = capsys.readouterr()
    assert f"the data folder {tmp_path / name} {reason}" in printed.err
    assert printed.out == ""


RUNS = ("rp", "gntk", "ntk", "partition --parts 2 --folder parts")


@pytest.mark.parametrize("command", RUNS)
@pytest.mark.parametrize("name", ["a/b", "korra", "cora.png"])
def test_a_set_that_is_none_is_told_before_anything_of_it(
    command, name, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*command.split(), "--dataset", name]) == 2
    told = capsys.readouterr().err
    assert told.startswith("gnnrp: dataset must be one of cora, ")
    assert f"got {name!r}" in told


@pytest.mark.parametrize("command", RUNS)
@pytest.mark.parametrize("named", [[], ["--dataset", "sbm"]])
def test_a_data_folder_beside_the_generated_set_is_refused(
    command, named, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*command.split(), "--data-dir", ".", *named]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert told == (
        "gnnrp: --data-dir does not apply to the generated dataset 'sbm'; choose "
        "another one by --dataset"
    )


def test_files_with_fewer_edges_than_the_papers_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    miniatures.ogb(tmp_path / "ogbn_arxiv", "arxiv")
    told = gnnrp(
        "rp", "--dataset", "arxiv", "--data-dir", ".", "--num-steps", "3", cwd=tmp_path
    ).stderr.splitlines()
    here = "gnnrp: arxiv has 12 nodes here and 169,343 in the paper; the files may be"
    assert f"{here} incomplete" in told
    assert any("edges here and 1,166,243 in the paper" in line for line in told)


HOSTILE = "\x1b]0;title\x07\x9b31m\u202egpj.\u2066"


@pytest.mark.parametrize(
    "line",
    [
        ["rp", "--data-dir", HOSTILE, "--dataset", "cora"],
        ["rp", "--dataset", HOSTILE],
        ["rp", "--plot", HOSTILE],
        ["rp", "--folder", f"/proc/{HOSTILE}"],
        ["rp", f"--{HOSTILE}"],
        [HOSTILE],
        ["rp", "--power", HOSTILE],
        ["rp", "--max-memory", HOSTILE],
        ["rp", "--shards", HOSTILE],
        ["partition", "--parts", "2", "--folder", "f", "--part-of", HOSTILE],
        ["datasets", "--data-dir", HOSTILE],
    ],
)
@pytest.mark.parametrize("times", [1, 2000])
def test_foreign_text_cannot_act_on_the_terminal_and_is_short(
    line, times, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert cli.main([part.replace(HOSTILE, HOSTILE * times) for part in line]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert told.isprintable()
    assert len(told) <= 300


def test_a_folder_of_data_cannot_act_on_the_terminal(tmp_path, capsys, monkeypatch):
    folder = tmp_path / HOSTILE
    folder.mkdir()
    (folder / "tolokers.npz").write_bytes(b"not an archive")
    monkeypatch.setenv("GNNRP_DATA", str(folder))
    for line, kind in (([], "table"), (["--json"], "record")):
        assert cli.main(["datasets", *line]) == 0
        printed = capsys.readouterr().out
        assert printed.replace("\n", "").isprintable(), kind
        assert r"\u001b]0;title" in printed
    rows = {row["name"]: row for row in json.loads(printed)["datasets"]}
    assert HOSTILE in rows["tolokers"]["where"].encode().decode("unicode_escape")
    assert cli.main(["rp", "--dataset", "tolokers", "--json", "--no-download"]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert told.isprintable()


def test_the_address_of_a_missing_file_is_printed_whole(capsys, monkeypatch):
    monkeypatch.setenv("GNNRP_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/nowhere")
    line = ["rp", "--dataset", "cora", "--no-download", "--json"]
    assert cli.main(line) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert re.search(r"fetch https://\S+/ind\.cora\.x by hand into /nowhere/", told)
    monkeypatch.setenv("GNNRP_DATA", "/".join("x" * 200))
    assert cli.main(line) == 2
    assert len(capsys.readouterr().err.strip()) <= 300


@pytest.mark.parametrize(
    ("error", "status", "told"),
    [
        (MemoryError(), 2, "not enough memory (no more could be allocated); choose a"),
        (MemoryError("Unable to allocate 3 GB"), 2, "memory (Unable to allocate 3 GB)"),
        (
            jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory.\nLimit: 9"),
            2,
            "not enough memory (Out of memory); choose a smaller dataset or smaller",
        ),
        (KeyError("\x1bx"), 1, "unexpected error (KeyError: "),
        (AssertionError(), 1, "unexpected error (AssertionError); --debug shows"),
        (OSError(), 1, "unexpected error (OSError)"),
        (RuntimeError("x" * 10**7), 2, "xxx ... xxx"),
    ],
)
def test_an_error_of_any_kind_is_one_sentence(error, status, told, capsys, monkeypatch):
    def load(*_, **__):
        raise error

    monkeypatch.setattr("gnnrp.datasets.load", load)
    assert cli.main(["rp", "--json"]) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gnnrp: ")
    assert told in line
    assert line.isprintable()
    assert len(line) <= 300
    with pytest.raises(type(error)):
        cli.main(["rp", "--json", "--debug"])


@pytest.mark.parametrize(
    ("command", "platforms"),
    [
        ("rp --json", "cuda"),
        pytest.param("gntk --json", "cuda", marks=pytest.mark.slow),
        pytest.param("ntk --json", "nonsense", marks=pytest.mark.slow),
        pytest.param("partition --parts 2 --folder f", "tpu", marks=pytest.mark.slow),
    ],
)
def test_a_device_that_is_not_here_is_refused_with_the_remedy(
    command, platforms, tmp_path
):
    chosen = {"JAX_PLATFORMS": platforms}
    done = gnnrp(*command.split(), cwd=tmp_path, environment=chosen)
    assert done.returncode == 2
    (told,) = done.stderr.splitlines()
    beginning = f"gnnrp: JAX cannot start a device of JAX_PLATFORMS={platforms!r} ("
    assert told.startswith(beginning)
    assert told.endswith("; unset it, or set JAX_PLATFORMS=cpu")
    assert len(told) <= 300
    assert done.stdout == ""


def _identity(path):
    status = path.lstat()  # without its times: reading a link changes one
    return status.st_ino, status.st_mode, status.st_size


@pytest.mark.parametrize("kind", ["pipe", "loop", "link to a pipe", "link to a device"])
@pytest.mark.parametrize("command", ["rp", "gntk", "ntk"])
def test_a_figure_replaces_nothing_but_a_file(command, kind, tmp_path, capsys):
    path, target = tmp_path / "figure.png", tmp_path / "target.png"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    else:
        os.mkfifo(target)
        path.symlink_to(target if kind == "link to a pipe" else "/dev/null")
    before = _identity(path)
    assert cli.main([command, "--plot", str(path)]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert "the figure cannot go to" in told
    assert _identity(path) == before


def test_the_warnings_of_libraries_are_one_line_each(tmp_path):
    code = "import warnings\nfrom gnnrp import cli, datasets\n"
    code += "def names(): warnings.warn('several\\nlines \\x1b[31m'); return ['sbm']\n"
    code += "datasets.names = names\ncli.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "datasets", "--quiet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == "gnnrp: several lines \\u001b[31m\n"
