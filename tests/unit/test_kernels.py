"""How kernels are found, and that their twins can take their place."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import pytest

import lucebox._kernels
from lucebox import acceptance
from lucebox.acceptance import reference as verify_twin
from lucebox.acceptance import tree_reference as tree_twin
from lucebox.acceptance.kernels import divergence, tree, verify
from lucebox.bench import kernels as bench
from lucebox.drafters import reference as suffix_twin
from lucebox.drafters.kernels import suffix
from lucebox.sampling import reference as sampling_twin
from lucebox.sampling.kernels import entropy, filters, gumbel, mask, rng, sampling
from tests.support.enumerate import expected_accepted, first_tokens, joint_law, one_round
from tests.support.source_tree import ROOT
from tests.support.toy import P3, Q3, constant, markov

TWINS: Mapping[ModuleType, ModuleType] = {
    divergence: verify_twin,
    tree: tree_twin,
    verify: verify_twin,
    entropy: sampling_twin,
    filters: sampling_twin,
    suffix: suffix_twin,
    gumbel: sampling_twin,
    mask: sampling_twin,
    rng: sampling_twin,
    sampling: sampling_twin,
}
# Without `abort`, a failure has no report; without the others, ggml's kernels serve.
WITHOUT_TWIN = ("abort", "attention", "packed")


def test_the_compiled_kernels_are_in_use() -> None:
    in_use = {module.__name__.rpartition(".")[2]: module.__name__ for module in TWINS}
    in_use |= {name: importlib.import_module(f"lucebox._kernels.{name}").__name__ for name in WITHOUT_TWIN}
    sources = {path.stem for path in (ROOT / "kernels").glob("*.pyx")}
    assert in_use == {name: f"lucebox._kernels.{name}" for name in sources}


def test_a_kernel_that_was_not_built_is_replaced_and_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert lucebox._kernels.compiled_or("no_such_kernel", sampling_twin) is sampling_twin
    assert "no_such_kernel" in caplog.text
    assert "reinstall" in caplog.text


def test_a_kernel_s_own_broken_import_surfaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_kernel.py").write_text("import no_such_dependency")
    monkeypatch.setattr(lucebox._kernels, "__path__", [*lucebox._kernels.__path__, str(tmp_path)])
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        lucebox._kernels.compiled_or("broken_kernel", sampling_twin)


def test_twins_and_kernels_have_the_same_functions() -> None:
    for kernel, twin in TWINS.items():
        names = [name for name in vars(kernel) if callable(getattr(kernel, name)) and name.islower()]
        assert names
        assert all(hasattr(twin, name) for name in names if not name.startswith("_"))


def test_strategies_are_exact_on_the_twins_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucebox.sampling.draw.sampling", sampling_twin)
    for name, expected in [("token", "1.533"), ("block", "1.72")]:
        monkeypatch.setattr(f"lucebox.acceptance.{name}.verify", verify_twin)
        strategy = acceptance.create(name)
        for sparse in (False, True):
            outcomes = one_round(strategy, constant(P3), constant(Q3), (), 3, sparse=sparse)
            assert expected_accepted(outcomes) == Fraction(expected)
            found = first_tokens(strategy, markov(3, 1), markov(3, 3), 3, lambda r: 2, sparse=sparse)
            assert found == joint_law(markov(3, 1), 3)


def test_the_benchmark_compares_both(capsys: pytest.CaptureFixture[str]) -> None:
    bench.main(["--n-vocab", "500", "--repeats", "1", "--seed", "3"])
    output = capsys.readouterr().out
    assert "500 logits a row, seed 3" in output
    assert output.count("×") == 7
