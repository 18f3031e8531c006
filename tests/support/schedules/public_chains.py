"""Operators and chains as people write them for PyTorch: NCHW images, OIHW filters, rows of any
axis. Each is index notation with its tensors and the ranges that they do not give."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

Chain = tuple[str, dict[str, tuple[str, tuple[int, ...]]], dict[str, int]]

N, C, O, H, W = 2, 16, 24, 14, 14

ACTIVATIONS = {
    "relu": "max({x}, 0)",
    "relu6": "min(max({x}, 0), 6)",
    "silu": "{x} * sigmoid({x})",
    "gelu": "0.5 * {x} * (1 + erf({x} * 0.70710678))",
    "tanh gelu": "0.5 * {x} * (1 + tanh(0.79788456 * ({x} + 0.044715 * {x} * {x} * {x})))",
    "hardswish": "{x} * min(max({x} + 3, 0), 6) / 6",
    "leaky relu": "where({x} > 0, {x}, 0.01 * {x})",
    "elu": "where({x} > 0, {x}, exp(min({x}, 0)) - 1)",
    "softplus": "log(1 + exp(min({x}, 20)))",
    "mish": "{x} * tanh(log(1 + exp(min({x}, 20))))",
}
CONVOLUTION = "R[n,o,h,w] += X[n,c,{s}*h+{d}*r-{p},{s}*w+{d}*q-{p}] * K[o,c,r,q]; "
BATCH_NORM = "(({x}) - m[o]) * rsqrt(v[o] + 0.00001) * g[o] + b[o]"


def public_chains() -> dict[str, Chain]:
    """All of them, by name."""
    found: dict[str, Chain] = {}
    for part in (
        _convolutions,
        _norms,
        _rows,
        _permutations,
        _pools,
        _attention,
        _losses,
        _shuffles,
    ):
        found |= dict(part())
    return found


def _f32(**shapes: tuple[int, ...]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: ("f32", shape) for name, shape in shapes.items()}


def _image(size: int, stride: int, taps: int, pad: int, step: int) -> int:
    return (size + 2 * pad - step * (taps - 1) - 1) // stride + 1


def _convolutions() -> Iterator[tuple[str, Chain]]:
    vectors = _f32(m=(O,), v=(O,), g=(O,), b=(O,))
    layouts = ((1, 1, 0, 1), (3, 1, 1, 1), (3, 2, 1, 1), (5, 1, 2, 1), (3, 1, 2, 2), (7, 2, 3, 1))
    for taps, stride, pad, step in layouts:
        out = _image(H, stride, taps, pad, step)
        tensors = _f32(X=(N, C, H, W), K=(O, C, taps, taps))
        ranges = {"h": out, "w": out}
        head = CONVOLUTION.format(s=stride, d=step, p=pad)
        name = f"convolution {taps} by {stride} step {step}"
        yield name, (head.rstrip("; "), tensors, ranges)
        text = f"{head}Y[n,o,h,w] = R[n,o,h,w] + b[o]"
        yield f"{name} and bias", (text, tensors | _f32(b=(O,)), ranges)
        normed = BATCH_NORM.format(x="R[n,o,h,w]")
        yield f"{name}, norm", (f"{head}Y[n,o,h,w] = {normed}", tensors | vectors, ranges)
        sums = f"{head}Y[n,o,h,w] = max({normed} + S[n,o,h,w], 0)"
        yield (
            f"{name}, norm, sum, relu",
            (sums, tensors | vectors | _f32(S=(N, O, out, out)), ranges),
        )
    head = CONVOLUTION.format(s=1, d=1, p=1)
    tensors = _f32(X=(N, C, H, W), K=(O, C, 3, 3)) | vectors
    for name, formula in ACTIVATIONS.items():
        ranges = {"h": H, "w": W}
        biased = f"{head}B[n,o,h,w] = R[n,o,h,w] + b[o]; Y[n,o,h,w] = "
        used = {k: t for k, t in tensors.items() if k in "XKb"}
        yield f"convolution, bias, {name}", (biased + formula.format(x="B[n,o,h,w]"), used, ranges)
        normed = f"{head}B[n,o,h,w] = {BATCH_NORM.format(x='R[n,o,h,w]')}; Y[n,o,h,w] = "
        yield (
            f"convolution, norm, {name}",
            (normed + formula.format(x="B[n,o,h,w]"), tensors, ranges),
        )
    first = "Y[n,o,h,w] += X[n,c,2*h+r-3,2*w+q-3] * K[o,c,r,q]"
    yield "first layer", (first, _f32(X=(1, 3, 32, 32), K=(O, 3, 7, 7)), {"h": 16, "w": 16})
    nhwc = "R[n,h,w,o] += X[n,c,h+r-1,w+q-1] * K[o,c,r,q]; Y[n,o,h,w] = max(R[n,h,w,o] * 2, 0)"
    yield (
        "convolution that changes layout",
        (nhwc, _f32(X=(N, C, H, W), K=(O, C, 3, 3)), {"h": H, "w": W}),
    )
    depthwise = (
        "R[n,c,h,w] += X[n,c,h+r-1,w+q-1] * K[c,r,q];"
        " Y[n,c,h,w] = min(max(R[n,c,h,w] + b[c], 0), 6)"
    )
    yield "depthwise", (depthwise, _f32(X=(N, C, H, W), K=(C, 3, 3), b=(C,)), {"h": H, "w": W})
    turned = (
        "Y[n,o,y,x] += where((y-r) % 2 == 0, where((x-q) % 2 == 0, X[n,c,(y-r)//2,(x-q)//2], 0), 0)"
        " * K[c,o,r,q]"
    )
    yield (
        "transposed convolution",
        (turned, _f32(X=(1, 8, 7, 7), K=(8, 6, 3, 3)), {"y": 15, "x": 15}),
    )
    padded = "O[y,f] += V[y+1-2*i,f] * I[i]"
    yield "transposed convolution of lines", (padded, _f32(V=(4, 48), I=(8,)), {"y": 16})
    line = "R[n,o,l] += X[n,c,l+r-1] * K[o,c,r]; Y[n,o,l] = tanh(R[n,o,l]) * sigmoid(R[n,o,l])"
    yield "gated convolution of lines", (line, _f32(X=(N, C, 50), K=(O, C, 3)), {"l": 50})


def _norms() -> Iterator[tuple[str, Chain]]:
    for name, kept, over in (
        ("layer norm", "n,c", "h,w"), ("instance norm", "n,c", "h,w"), ("batch norm", "c", "n,h,w"),
        ("norm of channels", "n,h,w", "c"), ("norm of images", "n", "c,h,w"),
        ("norm of rows", "n,c,h", "w"),
    ):  # fmt: skip
        for order in ("n,c,h,w", "n,h,w,c"):
            size = {"n": N, "c": C, "h": H, "w": W}
            count = 1
            for axis in over.split(","):
                count *= size[axis]
            text = (
                f"M[{kept}] += X[n,c,h,w]; D[n,c,h,w] = X[n,c,h,w] - M[{kept}] * {1 / count};"
                f" V[{kept}] += D[n,c,h,w] * D[n,c,h,w];"
                f" Y[{order}] = D[n,c,h,w] * rsqrt(V[{kept}] * {1 / count} + 0.00001) * g[c] + b[c]"
            )
            yield f"{name} to {order}", (text, _f32(X=(N, C, H, W), g=(C,), b=(C,)), {})
    group = (
        "M[n,g] += X[n,g,c,h,w]; D[n,g,c,h,w] = X[n,g,c,h,w] - M[n,g] * 0.001;"
        " V[n,g] += D[n,g,c,h,w] * D[n,g,c,h,w];"
        " Y[n,g,c,h,w] = max(D[n,g,c,h,w] * rsqrt(V[n,g] + 1) * s[g,c], 0)"
    )
    yield "group norm", (group, _f32(X=(N, 4, 4, H, W), s=(4, 4)), {})
    root = "S[t] += X[t,c] * X[t,c]; Y[t,c] = X[t,c] * rsqrt(S[t] * 0.01 + 0.00001) * g[c]"
    yield "root mean square norm", (root, _f32(X=(12, 96), g=(96,)), {})


def _rows() -> Iterator[tuple[str, Chain]]:
    shape = (3, 12, 10, 9)
    for axis in range(4):
        names = ["a", "b", "c", "d"]
        kept, at = ",".join(n for n in names if n != names[axis]), ",".join(names)
        tensors = _f32(X=shape)
        softmax = (
            f"M[{kept}] max= X[{at}]; E[{at}] = exp(X[{at}] - M[{kept}]); S[{kept}] += E[{at}];"
            f" Y[{at}] = E[{at}] / S[{kept}]"
        )
        yield f"softmax of axis {axis}", (softmax, tensors, {})
        log = (
            f"M[{kept}] max= X[{at}]; S[{kept}] += exp(X[{at}] - M[{kept}]);"
            f" Y[{at}] = X[{at}] - M[{kept}] - log(S[{kept}])"
        )
        yield f"log softmax of axis {axis}", (log, tensors, {})
        for reducer in ("+=", "max=", "min=", "*="):
            yield f"{reducer} over axis {axis}", (f"Y[{kept}] {reducer} X[{at}]", tensors, {})
        argmax = (
            f"M[{kept}] max= X[{at}];"
            f" Y[{kept}] min= where(X[{at}] == M[{kept}], {names[axis]}, 100000)"
        )
        yield f"argmax of axis {axis}", (argmax, tensors, {})
        rest = ",".join(names[:axis] + names[axis + 1 :])
        yield f"mean square over all but axis {axis}", (
            f"Y[{names[axis]}] += X[{at}] * X[{at}] * 0.5; Z[{rest}] += X[{at}]", tensors, {},
        )  # fmt: skip


def _permutations() -> Iterator[tuple[str, Chain]]:
    size = {"a": 3, "b": 8, "c": 10, "d": 16}
    for order in permutations("abcd"):
        text = f"Y[a,b,c,d] = X[{','.join(order)}] * 2"
        yield f"permuted {''.join(order)}", (text, _f32(X=tuple(size[n] for n in order)), {})
    both = "Y[a,b,c,d] = max(X[a,c,d,b] + Z[d,a,b,c] * s[c], 0)"
    shapes = _f32(X=(3, 10, 16, 8), Z=(16, 3, 8, 10), s=(10,))
    yield "two reads in other orders", (both, shapes, {})
    yield "NHWC to NCHW", ("Y[n,c,h,w] = X[n,h,w,c] * 2", _f32(X=(1, 56, 56, 64)), {})
    five = "Y[n,h,t,p,d] = X[n,t,p,h,d] * 0.125"
    yield "windows of attention", (five, _f32(X=(2, 7, 7, 4, 16)), {})
    normal = "Y[n,c,h,w] = (f32(X[n,h,w,c]) * 0.00392 - m[c]) * s[c]"
    yield "an image from bytes", (normal, {"X": ("u8", (1, 32, 32, 3))} | _f32(m=(3,), s=(3,)), {})


def _pools() -> Iterator[tuple[str, Chain]]:
    for taps, stride, pad in ((2, 2, 0), (3, 2, 1), (3, 1, 1), (7, 7, 0)):
        out = _image(H, stride, taps, pad, 1)
        ranges, tensors = {"h": out, "w": out, "r": taps, "q": taps}, _f32(X=(N, C, H, W))
        read = f"X[n,c,{stride}*h+r-{pad},{stride}*w+q-{pad}]"
        yield f"max pool {taps} by {stride}", (f"Y[n,c,h,w] max= {read}", tensors, ranges)
        mean = f"S[n,c,h,w] += {read}; Y[n,c,h,w] = S[n,c,h,w] * {1 / taps**2}"
        yield f"mean pool {taps} by {stride}", (mean, tensors, ranges)
    yield "global mean", ("S[n,c] += X[n,c,h,w]; Y[n,c] = S[n,c] * 0.005", _f32(X=(N, C, H, W)), {})
    scaled = (
        "S[n,c] += X[n,c,h,w]; Z[n,e] += S[n,c] * A[e,c]; F[n,c] += max(Z[n,e], 0) * B[c,e];"
        " Y[n,c,h,w] = X[n,c,h,w] * sigmoid(F[n,c])"
    )
    yield "squeeze and excitation", (scaled, _f32(X=(N, C, H, W), A=(4, C), B=(C, 4)), {})
    head = CONVOLUTION.format(s=1, d=1, p=1) + "B[n,o,h,w] = R[n,o,h,w] * sigmoid(R[n,o,h,w]); "
    images = _f32(X=(N, C, H, W), K=(O, C, 3, 3))
    pooled = f"{head}M[n,o,i,j] max= B[n,o,2*i+a,2*j+b]; Y[n,o,i,j] = tanh(M[n,o,i,j])"
    ranges = {"h": H, "w": W, "i": 7, "j": 7, "a": 2, "b": 2}
    yield "convolution, swish, max pool, tanh", (pooled, images, ranges)
    softmax = (
        "M[n,e,f,g] max= X[n,c,e,f,g]; E[n,c,e,f,g] = exp(X[n,c,e,f,g] - M[n,e,f,g]);"
        " S[n,e,f,g] += E[n,c,e,f,g];"
        " P[n,c,d,h,w] max= E[n,c,2*d+p,2*h+q,2*w+r] / S[n,2*d+p,2*h+q,2*w+r]"
    )
    ranges = {"d": 4, "h": 8, "w": 8, "p": 2, "q": 2, "r": 2}
    yield "softmax of volumes, max pool", (softmax, _f32(X=(N, C, 8, 16, 16)), ranges)
    moved = (
        "T[n,c,d,h,w] = X[n,d,h,w,c] * 2; P[n,c,i,j,k] max= T[n,c,2*i+p,2*j+q,2*k+r];"
        " Y[n,c,i,j,k] = tanh(P[n,c,i,j,k])"
    )
    ranges = {"i": 4, "j": 8, "k": 8, "p": 2, "q": 2, "r": 2}
    yield "volumes from n,d,h,w,c, max pool", (moved, _f32(X=(N, 8, 16, 16, C)), ranges)
    groups = (
        "G[n,a] += X[n,32*a+b]; V[n,a] += X[n,32*a+b] * (X[n,32*a+b] - G[n,a] / 32);"
        " P[n,i] max= (X[n,2*i+r] - G[n,i//16] / 32) * rsqrt(V[n,i//16])"
    )
    ranges = {"a": 16, "b": 32, "i": 256, "r": 2}
    yield "group norm of rows, max pool", (groups, _f32(X=(64, 512)), ranges)
    up = "Y[n,c,h,w] = X[n,c,h//2,w//2] + S[n,c,h,w]"
    yield "nearest neighbours", (up, _f32(X=(N, C, 7, 7), S=(N, C, H, W)), {})


def _attention() -> Iterator[tuple[str, Chain]]:
    for order, causal in product(("b,h,t,d", "b,t,h,d"), (False, True)):
        size = {"b": 1, "h": 4, "t": 18, "d": 16}
        shape = tuple(size[n] for n in order.split(","))
        keys, values = order.replace("t", "s"), order.replace("t", "s")
        score = "where(s <= t, P[b,h,t,s] * 0.25, -1000)" if causal else "P[b,h,t,s] * 0.25"
        text = (
            f"P[b,h,t,s] += Q[{order}] * K[{keys}]; A[b,h,t,s] = {score}; M[b,h,t] max= A[b,h,t,s];"
            f" E[b,h,t,s] = exp(A[b,h,t,s] - M[b,h,t]); S[b,h,t] += E[b,h,t,s];"
            f" Y[{order}] += E[b,h,t,s] / S[b,h,t] * V[{values}]"
        )
        name = f"attention {order}{' causal' if causal else ''}"
        yield name, (text, _f32(Q=shape, K=shape, V=shape), {})
    heads = "P[t,h,d] += X[t,c] * K[h,d,c]; Y[h,t,d] = P[t,h,d] + b[h,d]"
    yield "projection to heads", (heads, _f32(X=(18, 64), K=(4, 16, 64), b=(4, 16)), {})
    linear = (
        "P[t,o] += X[t,c] * K[o,c]; Y[t,o] = (P[t,o] + b[o]) * sigmoid(1.702 * (P[t,o] + b[o]))"
    )
    yield "linear, bias, quick gelu", (linear, _f32(X=(18, 64), K=(48, 64), b=(48,)), {})
    gated = (
        "P[t,o] += X[t,c] * K[o,c]; G[t,o] += X[t,c] * L[o,c];"
        " Y[t,o] = P[t,o] * sigmoid(P[t,o]) * G[t,o]"
    )
    yield "gated linear", (gated, _f32(X=(18, 64), K=(48, 64), L=(48, 64)), {})
    rotary = "Y[b,h,t,d] = X[b,t,h,d] * c[t,d] + where(d < 8, -X[b,t,h,d+8], X[b,t,h,d-8]) * s[t,d]"
    yield "rotary embedding", (rotary, _f32(X=(1, 18, 4, 16), c=(18, 16), s=(18, 16)), {})


def _losses() -> Iterator[tuple[str, Chain]]:
    tensors = _f32(X=(12, 40), T=(12, 40))
    for name, term in {
        "mean square": "(X[i,j] - T[i,j]) * (X[i,j] - T[i,j])",
        "mean distance": "abs(X[i,j] - T[i,j])",
        "binary cross entropy": "max(X[i,j], 0) - X[i,j] * T[i,j] + log(1 + exp(-abs(X[i,j])))",
        "huber": "where(abs(X[i,j] - T[i,j]) < 1,"
        " 0.5 * (X[i,j] - T[i,j]) * (X[i,j] - T[i,j]), abs(X[i,j] - T[i,j]) - 0.5)",
        "hinge": "max(1 - X[i,j] * T[i,j], 0)",
    }.items():  # fmt: skip
        yield name, (f"L[z] += {term}; Y[z] = L[z] * 0.002", tensors, {"z": 1})
    entropy = (
        "M[i] max= X[i,j]; S[i] += exp(X[i,j] - M[i]); P[i] += X[i,j] * T[i,j];"
        " L[z] += M[i] + log(S[i]) - P[i]"
    )
    yield "cross entropy", (entropy, tensors, {"z": 1})
    cosine = (
        "A[i] += X[i,j] * T[i,j]; B[i] += X[i,j] * X[i,j]; D[i] += T[i,j] * T[i,j];"
        " Y[i] = A[i] * rsqrt(B[i] * D[i] + 0.01)"
    )
    yield "cosine similarity", (cosine, tensors, {})


def _shuffles() -> Iterator[tuple[str, Chain]]:
    shuffle = "Y[n,c,y,x] = X[n,4*c+2*(y%2)+x%2,y//2,x//2] * 2"
    yield "pixel shuffle", (shuffle, _f32(X=(N, C, 7, 7)), {"c": C // 4, "y": 14, "x": 14})
    back = "Y[n,c,h,w] = X[n,c//4,2*h+c//2%2,2*w+c%2] + 1"
    yield "pixel unshuffle", (back, _f32(X=(N, C, H, W)), {"c": 4 * C, "h": 7, "w": 7})
    channels = "Y[n,c,h,w] = max(X[n,4*(c%4)+c//4,h,w], 0)"
    yield "channel shuffle", (channels, _f32(X=(N, C, H, W)), {"c": C})
    patches = "Y[n,t,e] += X[n,c,4*(t//4)+r,4*(t%4)+q] * K[e,c,r,q]"
    yield "embedding of patches", (patches, _f32(X=(N, 3, 16, 16), K=(32, 3, 4, 4)), {"t": 16})
    flipped = "Y[n,c,h,w] = X[n,c,h,13-w] * 0.5 + X[n,c,13-h,w] * 0.5"
    yield "flips", (flipped, _f32(X=(N, C, H, W)), {})
    rolled = "Y[n,t,p,c] = X[n,(t+3)%7,(p+3)%7,c] + b[c]"
    yield "rolled windows", (rolled, _f32(X=(N, 7, 7, C), b=(C,)), {"t": 7, "p": 7})
    padded = "Y[n,c,y,x] = X[n,c,y-2,x-2] * 2"
    yield "padding", (padded, _f32(X=(N, C, H, W)), {"y": 18, "x": 18})
