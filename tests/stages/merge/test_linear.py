"""Linear merge of safetensors. Oracle: hand-worked values, bits of the inputs, and the published failures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from stages.core.errors import ConfigError, DataError
from stages.merge.linear import effective_weights, merge
from stages.merge.parents import INDEX, SINGLE, Parent, open_parent, specs_of


def parent(folder: Path, name: str, tensors: dict[str, torch.Tensor], shards: dict[str, str] | None = None) -> Parent:
    """A folder of weights; ``shards`` names the file of each tensor."""
    place = folder / name
    place.mkdir()
    if shards is None:
        save_file(tensors, place / SINGLE, metadata={"format": "pt"})
    else:
        for file in set(shards.values()):
            save_file({key: tensors[key] for key in tensors if shards[key] == file}, place / file, {"format": "pt"})
        (place / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    return open_parent(name, place)


def merged(folder: Path, parents: list[Parent], weights: list[float], *, normalize: bool = True) -> Path:
    out = folder / "out"
    out.mkdir()
    given = dict(zip([item.name for item in parents], weights, strict=True))
    effective = effective_weights(list(given), given, normalize=normalize)
    merge(parents, list(effective.values()), out, normalized=normalize, between=lambda: None)
    return out


def one_value(folder: Path, values: list[float], weights: list[float], dtype=torch.float32, **how) -> torch.Tensor:
    parents = [parent(folder, f"p{i}", {"w": torch.tensor([value], dtype=dtype)}) for i, value in enumerate(values)]
    return load_file(merged(folder, parents, weights, **how) / SINGLE)["w"]


def test_normalised_weights(tmp_path):
    """Parents 1 and 3, weights .1 and 1: 3.1 / 1.1 = 2.818182."""
    assert one_value(tmp_path, [1, 3], [0.1, 1.0]).item() == pytest.approx(2.818182, abs=1e-6)


def test_raw_weights(tmp_path):
    assert one_value(tmp_path, [1, 3], [0.1, 1.0], normalize=False).item() == pytest.approx(3.1, abs=1e-6)


def test_arithmetic_is_wider_than_bf16_and_the_file_is_not(tmp_path):
    """Mean of bf16 256, 1, 1 is 86; accumulated in bf16 it would be 85.5."""
    result = one_value(tmp_path, [256, 1, 1], [1, 1, 1], torch.bfloat16)
    assert result.dtype == torch.bfloat16
    assert result.item() == 86.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_equal_parents_come_back_bit_for_bit(tmp_path, dtype):
    """Random values, both zeros, the smallest and the largest number; three parents of thirds that do not sum to 1."""
    generator = torch.Generator().manual_seed(0)
    special = torch.tensor([0.0, -0.0, torch.finfo(dtype).tiny, torch.finfo(dtype).max], dtype=torch.float64)
    values = torch.cat([torch.randn(500, generator=generator, dtype=torch.float64), special]).to(dtype)
    parents = [parent(tmp_path, name, {"w": values}) for name in "abc"]
    out = merged(tmp_path, parents, [0.1, 0.7, 1 / 3])
    assert (out / SINGLE).read_bytes() == (parents[0].folder / SINGLE).read_bytes()


def test_a_merge_equals_the_textbook_sum(tmp_path):
    """Oracle: sum of w W in fp64."""
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(7, 5, generator=generator) for _ in range(4)]
    weights = [0.5, 2.0, 0.0, 1.0]
    parents = [parent(tmp_path, f"p{i}", {"w": tensor}) for i, tensor in enumerate(tensors)]
    result = load_file(merged(tmp_path, parents, weights) / SINGLE)["w"]
    expected = sum(w * t.double() for w, t in zip(weights, tensors, strict=True)) / 3.5
    torch.testing.assert_close(result.double(), expected, rtol=1e-6, atol=1e-6)


def test_shards_are_kept_and_parents_may_be_cut_differently(tmp_path):
    """Oracle: the merge of the same tensors in one file."""
    tensors = {name: torch.full((2, 2), float(i)) for i, name in enumerate("abc")}
    doubled = {name: 3 * tensor for name, tensor in tensors.items()}
    first = parent(tmp_path, "first", tensors, {"a": "one.safetensors", "b": "two.safetensors", "c": "one.safetensors"})
    second = parent(tmp_path, "second", doubled)
    out = merged(tmp_path, [first, second], [1, 1])
    assert sorted(path.name for path in out.iterdir()) == [INDEX, "one.safetensors", "two.safetensors"]
    result = load_file(out / "one.safetensors") | load_file(out / "two.safetensors")
    for name, tensor in tensors.items():
        assert torch.equal(result[name], 2 * tensor)
    assert specs_of(open_parent("result", out)) == specs_of(first)


def test_integer_tensors_are_copied(tmp_path):
    ids = torch.arange(8)
    flags = torch.tensor([True, False])
    parents = [parent(tmp_path, name, {"w": torch.ones(1), "ids": ids, "flags": flags}) for name in "abc"]
    result = load_file(merged(tmp_path, parents, [1, 1, 1]) / SINGLE)
    assert torch.equal(result["ids"], ids)
    assert result["ids"].dtype == torch.int64
    assert torch.equal(result["flags"], flags)


def test_integer_tensors_that_differ_are_refused(tmp_path):
    parents = [parent(tmp_path, "a", {"ids": torch.arange(8)}), parent(tmp_path, "b", {"ids": torch.arange(1, 9)})]
    with pytest.raises(DataError, match="b: ids: got other values than a"):
        merged(tmp_path, parents, [1, 1])


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("culprit", [0, 1])
def test_a_damaged_parent_is_named_and_nothing_is_written(tmp_path, bad, culprit):
    good = {"a": torch.ones(3), "b": torch.ones(3)}
    damaged = {"a": torch.ones(3), "b": torch.tensor([1, bad, 1])}
    parents = [parent(tmp_path, f"p{i}", damaged if i == culprit else good) for i in range(2)]
    with pytest.raises(DataError, match=f"p{culprit}: b: got 1 of 3 values NaN or infinite"):
        merged(tmp_path, parents, [1, 1])
    assert list((tmp_path / "out").iterdir()) == []


def test_a_sum_that_overflows_the_dtype_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"merged model in torch\.float16: w"):
        one_value(tmp_path, [60000, 60000], [1, 1], torch.float16, normalize=False)


def test_an_interrupted_merge_leaves_nothing(tmp_path):
    parents = [parent(tmp_path, name, {"w": torch.ones(1)}) for name in "ab"]
    (tmp_path / "out").mkdir()

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge(parents, [0.5, 0.5], tmp_path / "out", normalized=True, between=stop)
    assert list((tmp_path / "out").iterdir()) == []


def test_weights_default_to_one():
    assert effective_weights(["a", "b"], {"b": 3}, normalize=True) == {"a": 0.25, "b": 0.75}
    assert effective_weights(["a", "b"], {"b": -3}, normalize=False) == {"a": 1, "b": -3}


@pytest.mark.parametrize(
    ("given", "normalize", "message"),
    [
        ({"a": 1, "b": -1}, True, "weights from -1 with sum 0"),
        ({"a": 0, "b": 0}, True, "sum 0"),
        ({"a": 3, "b": -1}, True, "weights from -1 with sum 2"),
        ({"c": 1}, False, "weights.c: got no such cell; expected one of a, b"),
        ({"a": float("nan")}, False, "weights.a: got nan"),
        ({"a": float("inf")}, True, "weights.a: got inf"),
    ],
)
def test_weights_that_make_no_sense_are_refused(given, normalize, message):
    with pytest.raises(ConfigError, match=message):
        effective_weights(["a", "b"], given, normalize=normalize)


def test_folders_without_their_weights_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"neither model\.safetensors"):
        open_parent("low", tmp_path)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": "gone.safetensors"}}))
    with pytest.raises(DataError, match=r"got no gone\.safetensors"):
        open_parent("low", tmp_path)


def test_an_index_that_promises_too_much_is_refused(tmp_path):
    found = parent(tmp_path, "p", {"a": torch.ones(1)}, {"a": "one.safetensors"})
    promised = Parent(found.name, found.folder, {"a": "one.safetensors", "b": "one.safetensors"})
    with pytest.raises(DataError, match="b in only one of index and shards"):
        specs_of(promised)


def test_broken_weights_are_refused(tmp_path):
    found = parent(tmp_path, "p", {"a": torch.ones(1)})
    (found.folder / SINGLE).write_bytes(b"\x08")
    with pytest.raises(DataError, match="expected safetensors"):
        specs_of(found)
