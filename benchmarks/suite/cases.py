"""What is timed: operators of the library and expressions that are in none, as plain data.

Shapes of operators are layers of published networks or common sizes; the expressions were chosen
to differ in structure from each other and from every operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

EXTENTS = (1, 2, 3, 7, 13, 17, 31, 33, 65)
"""Where results are checked: one, small primes, and the neighbours of vector lengths."""


@dataclass(frozen=True, slots=True)
class Case:
    """One computation. `operator` with `sizes`, or `notation` with `tensors` and `ranges`.

    `peer` names the way NumPy and PyTorch are asked to do it (`benchmarks/peers.py`). Tensor
    shapes are texts with the names of `sizes` in them, and so are the extents of `ranges`.
    `axes` are the sizes that a correctness check may set to anything, `constants` the inputs of an
    operator whose values never change.
    """

    name: str
    peer: str
    sizes: Mapping[str, int]
    operator: str = ""
    epilogue: str = ""
    notation: str = ""
    tensors: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, str] = field(default_factory=dict)
    axes: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()

    @property
    def arguments(self) -> list[str]:
        """The workload as `tilewright` takes it on a command line."""
        return self.spelled(self.sizes)

    def spelled(self, sizes: Mapping[str, int]) -> list[str]:
        """The same computation at other sizes."""
        if self.operator:
            parts = [f"{name}={value}" for name, value in sizes.items()]
            if self.epilogue:
                parts.append(f"epilogue={self.epilogue}")
            if self.constants:
                parts.append(f"constant={'+'.join(self.constants)}")
            return [f"{self.operator}:{','.join(parts)}"]
        words = ["--expr", self.notation]
        for name, shape in self.tensors.items():
            extents = ",".join(str(_extent(part, sizes)) for part in shape.split(","))
            words += ["--tensor", f"{name}=f32[{extents}]"]
        for name, text in self.ranges.items():
            words += ["--range", f"{name}={_extent(text, sizes)}"]
        return words


def _extent(text: str, sizes: Mapping[str, int]) -> int:
    """A number, a size, or a sum of both: `M`, `W+8`."""
    return sum(int(part) if part.isdigit() else sizes[part] for part in text.split("+"))


def _conv(name: str, epilogue: str = "", **sizes: int) -> Case:
    full = {"N": 1, **sizes}
    return Case(
        name, "conv2d_nhwc", full, operator="conv2d_nhwc", epilogue=epilogue,
        axes=("H", "W", "CI", "CO"),
    )  # fmt: skip


def _matmul(
    name: str, operator: str, peer: str, m: int, n: int, k: int, epilogue: str = ""
) -> Case:
    sizes = {"M": m, "N": n, "K": k}
    return Case(name, peer, sizes, operator=operator, epilogue=epilogue, axes=("M", "N", "K"))


GEMMS = {
    case.name: case
    for case in (
        _matmul("matmul 512", "matmul", "matmul", 512, 512, 512),
        _matmul("matmul 1024", "matmul", "matmul", 1024, 1024, 1024),
        _matmul("matmul 1000", "matmul", "matmul", 1000, 1000, 1000),
        _matmul("matmul 127x131x137", "matmul", "matmul", 127, 131, 137),
    )
}

OPERATORS = (
    _matmul("matmul 256", "matmul", "matmul", 256, 256, 256),
    _matmul("matmul bias 128x2304x768", "matmul", "matmul", 128, 2304, 768, "bias"),
    _matmul("matmul bias add 128x768x768", "matmul", "matmul", 128, 768, 768, "bias+add"),
    _matmul("matmul_nt 512", "matmul_nt", "matmul_nt", 512, 512, 512),
    _matmul("matmul_tn 512", "matmul_tn", "matmul_tn", 512, 512, 512),
    Case("gemv 1024", "gemv", {"N": 1024, "K": 1024}, operator="gemv", axes=("N", "K")),
    Case("gemv bias 1000x2048", "gemv", {"N": 1000, "K": 2048}, operator="gemv", epilogue="bias",
         axes=("N", "K")),
    Case("batch_matmul 12x128x64x128", "batch_matmul", {"B": 12, "M": 128, "N": 64, "K": 128},
         operator="batch_matmul", axes=("B", "M", "N", "K")),
    _conv("conv2d 3x3 28x28x128", H=28, W=28, CI=128, CO=128, K=3, stride=1, pad=1),
    _conv("conv2d 3x3/2 56x56x64", H=56, W=56, CI=64, CO=128, K=3, stride=2, pad=1),
    _conv("conv2d 1x1 bias relu 28x28x512", "bias+relu", H=28, W=28, CI=512, CO=128, K=1),
    _conv("conv2d 7x7/2 224x224x3", H=224, W=224, CI=3, CO=64, K=7, stride=2, pad=3),
    _conv("conv2d dilated 14x14x256", H=14, W=14, CI=256, CO=256, K=3, pad=1, dilation=2),
    _conv("conv2d grouped 14x14x256", H=14, W=14, CI=256, CO=256, K=3, pad=1, groups=4),
    Case("depthwise 112x112x32", "depthwise_conv2d_nhwc",
         {"N": 1, "H": 112, "W": 112, "C": 32, "K": 3, "stride": 1, "pad": 1},
         operator="depthwise_conv2d_nhwc", axes=("H", "W", "C")),
    Case("depthwise/2 bias relu6 56x56x144", "depthwise_conv2d_nhwc",
         {"N": 1, "H": 56, "W": 56, "C": 144, "K": 3, "stride": 2, "pad": 1},
         operator="depthwise_conv2d_nhwc", epilogue="bias+relu6", axes=("H", "W", "C")),
    Case("softmax 512x512", "softmax_mn", {"M": 512, "N": 512}, operator="softmax_mn",
         axes=("M", "N")),
    Case("layernorm 512x1024", "layernorm_mn", {"M": 512, "N": 1024}, operator="layernorm_mn",
         axes=("M", "N")),
    Case("norm 1x1024x1024", "norm_bmn", {"B": 1, "M": 1024, "N": 1024}, operator="norm_bmn",
         axes=("B", "M", "N")),
    Case("norm 16x256x256", "norm_bmn", {"B": 16, "M": 256, "N": 256}, operator="norm_bmn",
         axes=("B", "M", "N")),
    Case("add_relu 1024x1024", "elementwise_add_relu", {"M": 1024, "N": 1024},
         operator="elementwise_add_relu", axes=("M", "N")),
)  # fmt: skip

EXPRESSIONS = (
    Case("scaled product", "scaled_product", {"M": 256, "N": 256, "K": 256},
         notation="C[i,j] += A[i,k] * s[k] * B[k,j]",
         tensors={"A": "M,K", "s": "K", "B": "K,N"}, axes=("M", "N", "K")),
    Case("dot of each row", "row_dot", {"M": 1024, "K": 768},
         notation="y[i] += A[i,k] * B[i,k]", tensors={"A": "M,K", "B": "M,K"}, axes=("M", "K")),
    Case("three-way product", "three_way", {"I": 128, "J": 48, "K": 64, "R": 32},
         notation="Y[i,r] += T[i,j,k] * B[j,r] * C[k,r]",
         tensors={"T": "I,J,K", "B": "J,R", "C": "K,R"}, axes=("I", "J", "K", "R")),
    Case("transposed tensor product", "tensor_product",
         {"I": 48, "J": 36, "L": 40, "K": 24, "M": 20},
         notation="C[j,i,l] += A[k,i,m] * B[m,j,k,l]",
         tensors={"A": "K,I,M", "B": "M,J,K,L"}, axes=("I", "J", "K", "L", "M")),
    Case("max-plus product", "max_plus", {"M": 192, "N": 192, "K": 192},
         notation="C[i,j] max= A[i,k] + B[k,j]",
         tensors={"A": "M,K", "B": "K,N"}, axes=("M", "N", "K")),
    Case("L1 distances", "l1_distance", {"M": 192, "N": 160, "K": 64},
         notation="D[i,j] += abs(A[i,k] - B[j,k])",
         tensors={"A": "M,K", "B": "N,K"}, axes=("M", "N", "K")),
    Case("five-point stencil", "stencil", {"H": 768, "W": 768},
         notation="Y[i,j] = 0.5*X[i,j] + 0.125*(X[i-1,j] + X[i+1,j] + X[i,j-1] + X[i,j+1])",
         tensors={"X": "H,W"}, ranges={"i": "H", "j": "W"}, axes=("H", "W")),
    Case("log of sum of exp", "logsumexp", {"M": 512, "K": 1000},
         notation="m[i] max= A[i,k]; s[i] += exp(A[i,k] - m[i]); Y[i] = log(s[i]) + m[i]",
         tensors={"A": "M,K"}, axes=("M", "K")),
    Case("matching costs", "cost_volume", {"H": 48, "W": 64, "C": 64, "D": 9},
         notation="Y[h,w,d] += F[h,w,c] * G[h,w+d,c]",
         tensors={"F": "H,W,C", "G": "H,W+D,C"}, ranges={"d": "D"}, axes=("H", "W", "C", "D")),
    Case("gated unit", "gated", {"M": 512, "N": 1024},
         notation="Y[i,j] = A[i,j] * sigmoid(B[i,j])",
         tensors={"A": "M,N", "B": "M,N"}, axes=("M", "N")),
)  # fmt: skip
