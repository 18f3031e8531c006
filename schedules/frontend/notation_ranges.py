"""Infer the range of each index of a statement from the shapes of the tensors that it indexes.

Rule 1: an explicit range is used unchanged. Rule 2: an index that is the complete index of a
dimension has the extent of that dimension; different extents are an error. Rule 3: an index h in
`c*h + rest` has all values for which the reads are inside the padded tensor. If the minimum of
`rest` is -p, the tensor is padded by p at both ends. This gives the usual output size of a
convolution, (I + 2*pad - K)//stride + 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..algebra.affine import Affine, FloorDiv, Interval, Var, interval
from ..algebra.text_parser import Ref, Tree, syntax_error


@dataclass(frozen=True, slots=True)
class TensorUse:
    """One use of a tensor of shape `shape`, with one affine index per dimension."""

    place: Ref
    shape: tuple[int, ...]
    indices: tuple[Affine, ...]


@dataclass(frozen=True, slots=True)
class _Source:
    """The extent of an index. `text` describes the use that determined the extent, for error
    messages."""

    extent: int
    text: str


def infer_extents(
    text: str, places: Mapping[str, Tree], reads: list[TensorUse], given: Mapping[str, int]
) -> dict[str, int]:
    """Return an extent for every name in `places`. Raise WorkloadError if an extent is ambiguous or
    cannot be inferred."""
    found = {n: _Source(e, "the given range") for n, e in given.items()}
    _from_whole_dimensions(text, reads, found, given)
    while _one_round(text, reads, found):
        pass
    for name, place in places.items():
        if name not in found:
            uses = [str(i) for r in reads for i in r.indices if name in i.vars()]
            where = (
                f"it is only used in {', '.join(uses[:3])}" if uses else "no tensor is read by it"
            )
            raise syntax_error(
                text, place.pos,
                f"the range of index {name!r} is not known: {where};"
                f" give it with --range {name}=EXTENT",
                "unknown_range",
            )  # fmt: skip
    return {n: s.extent for n, s in found.items()}


def _from_whole_dimensions(
    text: str, reads: list[TensorUse], found: dict[str, _Source], given: Mapping[str, int]
) -> None:
    for read in reads:
        for dim, (index, extent) in enumerate(zip(read.indices, read.shape, strict=True)):
            name = _alone(index)
            if name is None or name in given:
                continue
            source = _Source(extent, f"dimension {dim} of {read.place.name}")
            _agree(text, read, name, source, found)


def _alone(index: Affine) -> str | None:
    if index.const or len(index.terms) != 1 or index.terms[0][1] != 1:
        return None
    atom = index.terms[0][0]
    return atom.name if isinstance(atom, Var) else None


def _agree(
    text: str, read: TensorUse, name: str, source: _Source, found: dict[str, _Source]
) -> None:
    before = found.setdefault(name, source)
    if before.extent != source.extent:
        raise syntax_error(
            text, read.place.pos,
            f"shapes clash: index {name!r} has the extent {before.extent} from {before.text}, but"
            f" {source.extent} from {source.text}; make them equal or give --range {name}=EXTENT",
            "shape_clash",
        )  # fmt: skip


def _one_round(text: str, reads: list[TensorUse], found: dict[str, _Source]) -> bool:
    """Infer the range of each index that is the only index of a dimension without a known range.
    Return whether any was inferred."""
    inferred: dict[str, _Source] = {}
    for read in reads:
        for dim, (index, extent) in enumerate(zip(read.indices, read.shape, strict=True)):
            unknown = index.vars() - found.keys()
            if len(unknown) != 1:
                continue
            name = next(iter(unknown))
            reach = _reach(index, extent, name, found)
            if reach is None:
                continue
            what = f"{index} in dimension {dim} of {read.place.name} (extent {extent})"
            if reach < 1:
                raise syntax_error(
                    text, read.place.pos,
                    f"{what} is outside for every {name!r}: the window is larger than the tensor",
                    "shape_clash",
                )  # fmt: skip
            _agree(text, read, name, _Source(reach, what), inferred)
    found.update(inferred)
    return bool(inferred)


def _reach(index: Affine, extent: int, name: str, found: Mapping[str, _Source]) -> int | None:
    """Return the extent of `name` by rule 3 of the module docstring, or None if the rule does not
    determine it."""
    divided = _opened(index)
    if divided is not None:
        numerator, divisor = divided
        low, _ = _rest(numerator, name, found)
        # If a read through a division is out of bounds, no convention determines the end that is
        # padded.
        return None if low < 0 else _reach(numerator, extent * divisor, name, found)
    step = index.coefficient(name)
    if not step or not index.is_linear_in(name):
        return None
    low, high = _rest(index, name, found)
    if step > 0:
        pad = max(0, -low)
        return (extent - 1 + pad - high) // step + 1
    pad = max(0, high - (extent - 1))
    return (low + pad) // -step + 1


def _opened(index: Affine) -> tuple[Affine, int] | None:
    if index.const or len(index.terms) != 1 or index.terms[0][1] != 1:
        return None
    atom = index.terms[0][0]
    return (atom.numerator, atom.divisor) if isinstance(atom, FloorDiv) else None


def _rest(index: Affine, name: str, found: Mapping[str, _Source]) -> tuple[int, int]:
    """Return the least and the greatest value of `index` if `name` is 0."""
    ranges = {n: Interval(0, s.extent - 1) for n, s in found.items()}
    ranges[name] = Interval(0, 0)
    bounds = interval(index, ranges)
    return bounds.lo, bounds.hi
