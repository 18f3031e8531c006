"""Variants of a matrix product on a CPU that PyTorch offers.

`torch.mm` calls MKL, `torch.ops.mkldnn` calls oneDNN. One may be twice as fast as the other, which
depends more on the processor than on the sizes. Constant weights may be packed before timing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..variants import Call, PeerVariant, ready

Tensor = Any

_ONEDNN: dict[str, tuple[str, list[float], str]] = {
    "": ("none", [], ""),
    "relu": ("relu", [], ""),
    "relu6": ("hardtanh", [0.0, 6.0], ""),
    "sigmoid": ("sigmoid", [], ""),
    "tanh": ("tanh", [], ""),
    "gelu": ("gelu", [], "tanh"),
    "gelu_erf": ("gelu", [], "none"),
}
"""The arguments of oneDNN for each activation: attribute, scalars, algorithm."""

ACTIVATIONS = tuple(name for name in _ONEDNN if name)


@dataclass(frozen=True, slots=True)
class ProductEpilogue:
    """The epilogue of a sum of products: `activation(sum + bias + added)`. `bias` has one entry per
    column (output channel), `added` has the result's shape."""

    bias: Tensor | None = None
    added: Tensor | None = None
    activation: str = ""

    def after(self, y: Tensor, *, bias: bool = True) -> Tensor:
        """Apply the epilogue to `y` in place, one operation per call. If `bias` is False, `y`
        already contains the bias."""
        if bias and self.bias is not None:
            y.add_(self.bias)
        if self.added is not None:
            y.add_(self.added)
        return activate(y, self.activation)


def activate(y: Tensor, activation: str) -> Tensor:
    """Apply the activation in place. Raise ValueError for a name that is not in ACTIVATIONS."""
    match activation:
        case "":
            return y
        case "relu":
            return y.relu_()
        case "relu6":
            return y.clamp_(0, 6)
        case "sigmoid":
            return y.sigmoid_()
        case "tanh":
            return y.tanh_()
        case "gelu" | "gelu_erf":
            import torch

            how = "tanh" if activation == "gelu" else "none"
            return torch.ops.aten.gelu_(y, approximate=how)
    raise ValueError(f"PyTorch has no function for the epilogue {activation!r}")


def onednn_words(activation: str) -> tuple[str, list[float], str]:
    """Return the attribute, scalars and algorithm of the activation for `torch.ops.mkldnn`."""
    return _ONEDNN[activation]


def product_variants(
    a: Tensor | Call,
    b: Tensor,
    y: Tensor,
    epilogue: ProductEpilogue = ProductEpilogue(),
    *,
    constant: bool = False,
) -> list[PeerVariant]:
    """Return variants of `epilogue(a @ b)`.

    `a` is a matrix [M, K], or a function that returns another matrix in each call; `b` is [K, N].
    Both may be stacks of matrices. `y` has the result's shape and may be written. If `constant`, b
    never changes and may be prepared in any layout.
    """
    if callable(a):
        return [
            *_plain_variants(a, b, y, epilogue),
            *_onednn_variants(a, b, y, epilogue, constant),
        ]
    if a.ndim == 3:
        return list(_stack_variants(a, b, y, epilogue))
    variants = [
        *_plain_variants(lambda: a, b, y, epilogue),
        *_onednn_variants(lambda: a, b, y, epilogue, constant),
    ]
    if not constant and epilogue.bias is None:
        variants.append(_exchanged(a, b, y, epilogue))
    return variants


def stack_variants(a: Call, b: Call, unfolded: Callable[[Tensor], Tensor]) -> list[PeerVariant]:
    """Return variants of a @ b for stacks that are not contiguous. A variant copies the stacks, or
    calls the library once per index of the first dimension or once per matrix."""
    import torch

    words = onednn_words("")

    def each() -> Tensor:
        return unfolded(torch.stack([torch.bmm(x, y) if x.ndim == 3 else torch.matmul(x, y)
                                     for x, y in zip(a(), b(), strict=True)]))  # fmt: skip

    def by_onednn() -> Tensor:
        left, right = a(), b()
        linear = torch.ops.mkldnn._linear_pointwise.default
        out = torch.empty((*left.shape[:-1], right.shape[-1]), dtype=left.dtype)
        parts = map(_matrices, (left, right, out))
        for x, y, to in zip(*parts, strict=True):
            to.copy_(linear(x, y.t(), None, *words))
        return unfolded(out)

    return [
        ready("torch.matmul of views", lambda: unfolded(torch.matmul(a(), b()))),
        ready("torch.matmul of copies", lambda: unfolded(
            torch.matmul(a().contiguous(), b().contiguous())
        )),
        ready("torch.bmm for each", each),
        ready("oneDNN linear for each", by_onednn),
    ]  # fmt: skip


def _matrices(stack: Tensor) -> list[Tensor]:
    """Return views of the matrices of a stack with any number of dimensions."""
    if stack.ndim == 2:
        return [stack]
    return [matrix for part in stack for matrix in _matrices(part)]


def _plain_variants(a: Call, b: Tensor, y: Tensor, e: ProductEpilogue) -> Iterator[PeerVariant]:
    import torch

    bias = e.bias
    if bias is None:
        yield ready("torch.mm", lambda: e.after(torch.mm(a(), b, out=y)))
    else:
        yield ready("torch.addmm", lambda: e.after(torch.addmm(bias, a(), b, out=y), bias=False))
    turned = b.t()
    yield ready(
        "linear", lambda: e.after(torch.nn.functional.linear(a(), turned, e.bias), bias=False)
    )
    if 1 in y.shape:
        flat = y.view(-1)

        def by_vector() -> Tensor:
            if y.shape[1] == 1:
                torch.mv(a(), b[:, 0], out=flat)
            elif bias is not None:
                torch.addmv(bias, turned, a()[0], out=flat)
            else:
                torch.mv(turned, a()[0], out=flat)
            return e.after(y, bias=y.shape[1] == 1)

        yield ready("torch.mv", by_vector)


def _onednn_variants(
    a: Call, b: Tensor, y: Tensor, e: ProductEpilogue, constant: bool
) -> Iterator[PeerVariant]:
    """Yield variants that call oneDNN without PyTorch's dispatch. They take the weights as [N, K]
    with any strides."""
    turned = b.t()
    yield PeerVariant("oneDNN linear", lambda: _linear(a, turned, e))
    if constant:
        yield PeerVariant(
            "oneDNN linear, weights turned", lambda: _linear(a, turned.contiguous(), e)
        )
        rows = y.shape[0]
        for name, batch in (("packed", rows), ("packed for any batch", None)):
            yield PeerVariant(f"oneDNN linear, weights {name}", _packed(a, turned, e, batch))


def _exchanged(a: Tensor, b: Tensor, y: Tensor, e: ProductEpilogue) -> PeerVariant:
    def prepare() -> Call:
        call = _linear(b.t, a, ProductEpilogue())
        return lambda: e.after(y.copy_(call().t()))

    return PeerVariant("oneDNN linear, operands exchanged", prepare)


def _packed(a: Call, weight: Tensor, e: ProductEpilogue, batch: int | None) -> Callable[[], Call]:
    def prepare() -> Call:
        import torch

        packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), batch)
        return _linear(a, packed, e)

    return prepare


def _linear(a: Call, weight: Tensor, e: ProductEpilogue) -> Call:
    """Return one call of oneDNN that includes the epilogue. If the epilogue adds a tensor, its
    activation is a separate call."""
    import torch

    linear = torch.ops.mkldnn._linear_pointwise
    bias, added = e.bias, e.added
    if added is not None:
        binary = linear.binary
        return lambda: activate(binary(a(), added, weight, bias, "add"), e.activation)
    words = onednn_words(e.activation)
    plain = linear.default
    return lambda: plain(a(), weight, bias, *words)


def _stack_variants(a: Tensor, b: Tensor, y: Tensor, e: ProductEpilogue) -> Iterator[PeerVariant]:
    import torch

    if y.is_contiguous():
        yield ready("torch.bmm", lambda: e.after(torch.bmm(a, b, out=y)))
    else:
        yield ready("torch.matmul", lambda: e.after(y.copy_(torch.matmul(a, b))))
    pairs = list(zip(a, b, y, strict=True))
    yield ready("torch.mm for each", lambda: e.after(_each(torch.mm, pairs, y)))
    turned = [(left, right.t(), out) for left, right, out in pairs]
    words = onednn_words("")

    def by_onednn() -> Tensor:
        linear = torch.ops.mkldnn._linear_pointwise.default
        for left, right, out in turned:
            out.copy_(linear(left, right, None, *words))
        return e.after(y)

    yield ready("oneDNN linear for each", by_onednn)


def _each(multiply: Any, parts: Sequence[tuple[Tensor, Tensor, Tensor]], y: Tensor) -> Tensor:
    for left, right, out in parts:
        multiply(left, right, out=out)
    return y
