"""The experiments in their form for a CPU, tiny."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.cli import main
from benchmarks.experiments import model_tokenizers
from benchmarks.experiments.architectures import ARCHITECTURES, small_config
from benchmarks.experiments.options import COMPARED, ExperimentOptions
from benchmarks.experiments.paper_tables import markdown
from benchmarks.harness.record import read_record
from benchmarks.inputs.models import random_weights
from nco_guard import demo
from nco_guard.tokens import read_vocabulary

DATA = Path(__file__).parent / "data"
TINY = ("experiments", "--cpu-small", "--repeats", "1", "--new-tokens", "3", "--batches", "2")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_a_run_measures_all_methods_and_a_second_one_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*TINY, "--models", "gpt-neo", "-o", str(tmp_path)]
    assert main([*arguments, "--tables", "1"]) == 0
    first = read_record(tmp_path / "results.json")
    assert {m.case.method for m in first.measurements} == set(COMPARED)
    assert all(m.status == "ok" for m in first.measurements)
    assert main([*arguments, "--tables", "1", "2"]) == 0
    second = read_record(tmp_path / "results.json")
    assert second.measurements[: len(first.measurements)] == first.measurements
    assert len(second.measurements) == 2 * len(first.measurements)
    assert "GPT-Neo-2.7B shape, small" in (tmp_path / "results.md").read_text()
    capsys.readouterr()
    assert main([*arguments, "--tables", "1", "2"]) == 0
    assert "nothing left to measure" in capsys.readouterr().err


def test_another_runs_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for new_tokens, status in (("2", 0), ("4", 2)):
        found = main(
            [
                *(
                    "experiments",
                    "--cpu-small",
                    "--repeats",
                    "1",
                    "--batches",
                    "1",
                    "--models",
                    "llama3",
                    "--tables",
                    "2",
                ),
                *("--methods", "ours", "--new-tokens", new_tokens, "-o", str(tmp_path)),
            ]
        )
        assert found == status
    assert "other options" in capsys.readouterr().err


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_shape_builds(name: str) -> None:
    shape = ARCHITECTURES[name]
    model = random_weights(shape.family, small_config(shape))
    assert model.get_output_embeddings().weight.shape[0] == 4096
    with torch.device("meta"):
        whole = random_weights(shape.family, shape.config, "meta", torch.bfloat16)
    billions = sum(p.numel() for p in whole.parameters()) / 1e9
    assert {"llama3": 7.9 < billions < 8.1, "qwen2.5": 7.4 < billions < 7.8, "gpt-neo": 2.5 < billions < 2.9}[
        name
    ]


def test_a_synthetic_vocabulary_has_the_width_and_reads_as_any_other() -> None:
    tokenizer = model_tokenizers.synthetic_tokenizer(6000)
    vocabulary = read_vocabulary(tokenizer)
    assert vocabulary.width == len(tokenizer) == 6000
    assert len(set(vocabulary.tokens)) > 5990
    text = "The parcel, «naïve» 日本 😀: 078-05-1120.\n"
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_wrong_input_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["experiments", "--cpu-small", "-o", str(tmp_path)]
    for wrong, words in (
        (["--models", "gpt-neo", "--tokenizer", str(tmp_path / "nowhere")], "no such folder"),
        (["--tokenizer", "gpt-5=x"], "--tokenizer gpt-5: there is llama3, qwen2.5, gpt-neo"),
        (["--batches", "0"], "--batches 0: a batch has at least one sequence"),
        (["--models", "other"], "--models other: there is llama3, qwen2.5, gpt-neo"),
        (["--tables", "3"], "--tables 3: there is 1, 2"),
        (["--repeats", "0"], "--repeats 0: "),
    ):
        assert main([*base, *wrong]) == 2
        assert words in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert main(["experiments", "-o", str(tmp_path)]) == 2
        assert "no CUDA device; use --cpu-small" in capsys.readouterr().err


def test_a_tokenizers_folder_takes_the_place_of_the_synthetic_one() -> None:
    found = ExperimentOptions(tokenizer=(f"llama3={demo.model_path()}",))
    assert set(found.folders) == {"llama3"}
    assert len(model_tokenizers.read_tokenizer(found.folders["llama3"], 4096)) <= 4096
    assert set(ExperimentOptions(tokenizer=("folder",)).folders) == set(ARCHITECTURES)


def test_a_record_of_an_earlier_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    record = read_record(DATA / "paper_tables.json")
    assert main(["render", str(DATA / "paper_tables.json")]) == 0
    shown = capsys.readouterr().out
    assert shown == markdown(record) + "\n"
    ours = next(m for m in record.measurements if m.case.method == "ours")
    assert f"| nco-guard | {100 * ours.samples['relative_ratio'][0]:.1f} ± 0.0 |" in shown
    assert main(["render", str(DATA / "paper_tables.json"), "--into", "page.md"]) == 2
