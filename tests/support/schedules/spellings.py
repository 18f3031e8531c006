"""Expressions with axes that always lie together, and expressions in several spellings."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.schedules.regrouping import expression
from tilewright.schedules.workload.workload import Workload

SOFTMAX = (
    "M[n,h,w] max= X[n,c,h,w]; E[n,c,h,w] = exp(X[n,c,h,w] - M[n,h,w]);"
    "S[n,h,w] += E[n,c,h,w]; Y[n,c,h,w] = E[n,c,h,w] / S[n,h,w]"
)

RANGES: dict[str, dict[str, int]] = {
    "the first rows": {"h": 5},
    "part of the columns": {"j": 5},
    "part of a window": {"j": 5},
}

MERGING: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "sum over a middle axis": ("Y[a,c,d] += X[a,b,c,d]", "X=f32[3,5,4,7]", (3, 28)),
    "softmax over channels": (SOFTMAX, "X=f32[2,5,3,7]", (2, 5, 21)),
    "bias of channels": ("Y[n,c,h,w] = relu(X[n,c,h,w] + b[c])", "X=f32[2,3,5,7] b=f32[3]",
                         (2, 3, 35)),
    "products of channels": ("Y[n,o,h,w] += X[n,c,h,w] * W[o,c]", "X=f32[2,3,5,7] W=f32[4,3]",
                             (2, 4, 35)),
    "three axes": ("Y[a,b,c] = 2.0 * X[a,b,c]", "X=f32[3,5,7]", (105,)),
    "scaled by an image": ("Y[n,h,w] = X[n,h,w] * m[h,w]", "X=f32[3,5,7] m=f32[5,7]", (3, 35)),
    "the pair twice": ("Y[i,j] = X[i,j,i,j]", "X=f32[3,5,3,5]", (15,)),
    "scanned along another axis": ("Y[h,w,t] = cumsum(X[h,w,t], t); Z[h,w] = Y[h,w,2]",
                                   "X=f32[3,7,5]", (21,)),
    "scanned before the pair": ("Y[t,h,w] = cumsum(X[t,h,w], t)", "X=f32[5,3,7]", (5, 21)),
    "one slice": ("Y[h,w] = X[1,h,w]", "X=f32[3,5,7]", (35,)),
    "the first rows": ("Y[h,w] = X[h,w] + Z[h,w]", "X=f32[9,7] Z=f32[5,7]", (35,)),
    "summed to a scale": ("S[n] += X[n,h,w]; Y[n,h,w] = X[n,h,w] / S[n]", "X=f32[3,5,7]", (3, 35)),
}  # fmt: skip


def drawn_spellings(data: st.DataObject) -> tuple[Workload, Workload, int]:
    """An expression over a, b and c with some of them written as two axes, the same with one axis
    each, and their number."""
    extents = {n: data.draw(st.integers(2, 4), n) for n in "abcxyz"}
    split = data.draw(st.sets(st.sampled_from("abc"), min_size=1), "split")
    orders = st.permutations("abc")
    lengths = [data.draw(st.integers(1, 3)) for _ in range(2)]
    reads = ["".join(data.draw(orders))[:length] for length in lengths]
    reads.append("".join(data.draw(orders)))
    result = "".join(data.draw(orders))[: data.draw(st.integers(1, 3), "kept")]
    second = {"a": "x", "b": "y", "c": "z"}

    def written(is_split: bool) -> Workload:
        def index(axes: str) -> str:
            return ",".join(n + f",{second[n]}" * (n in split and is_split) for n in axes)

        def extent(name: str) -> str:
            outer, inner = extents[name], extents[second[name]]
            if name not in split:
                return str(outer)
            return f"{outer},{inner}" if is_split else str(outer * inner)

        terms = " * ".join(f"T{n}[{index(axes)}]" for n, axes in enumerate(reads))
        shapes = " ".join(
            f"T{n}=f32[{','.join(map(extent, axes))}]" for n, axes in enumerate(reads)
        )
        sign = "=" if len(result) == 3 else "+="
        text = f"R[{index(result)}] {sign} {terms}; Y[{index(result)}] = relu(R[{index(result)}])"
        return expression(text, shapes)

    return written(is_split=True), written(is_split=False), len(split)
