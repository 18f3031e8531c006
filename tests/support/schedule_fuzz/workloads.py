"""Random computations at awkward extents: operators of the library, and others;
some with constant inputs, some with an error that allows rewrites."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from math import prod

from tests.support.schedule_fuzz.patterns import random_pattern
from tests.support.schedule_fuzz.tuples import random_tuples
from tests.support.schedules.stencils import stencil_program
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.operators import OPERATORS, build
from tilewright.schedules.workload.size import iterations
from tilewright.schedules.workload.workload import Workload

EXTENTS = (1, 2, 3, 7, 13, 17, 31, 33, 65)
"""One, the least that divides nothing, primes, and just off powers of two."""

MAX_POINTS = 1 << 18


def random_workload(rng: random.Random, max_points: int = MAX_POINTS) -> Workload:
    """A valid workload of at most `max_points` points, from one of the sources."""
    while True:
        try:
            found = _random_source(rng)(rng)
        except WorkloadError:
            continue
        if iterations(found) <= max_points:
            return with_constants(rng, found)


def _random_source(rng: random.Random) -> Callable[[random.Random], Workload]:
    kind = rng.random()
    if kind < 0.15:
        return random_filter
    if kind >= 0.98:
        return random_tuples
    if kind >= 0.95:
        return random_scan
    if kind >= 0.9:
        return stencil_program
    if kind >= 0.85:
        return random_masked
    if kind >= 0.8:
        return random_pattern
    return random_operator if kind < 0.5 else random_expression


LONG = (129, 257, 1000, 1031, 2048, 5003)
"""Long enough that threads divide the axis of a scan, and mostly no multiple of anything."""


def random_scan(rng: random.Random) -> Workload:
    """A scan along any axis of a tensor of one to three axes, one of them long or not: of an
    elementwise value, and half of the time with an elementwise stage after it."""
    axes = "abc"[: rng.randint(1, 3)]
    shape = [rng.choice((1, 2, 3, 5, 17)) for _ in axes]
    dim = rng.randrange(len(axes))
    shape[dim] = rng.choice((*EXTENTS, *LONG, *LONG))
    dtype = rng.choice(("f32", "f32", "f64", "i32", "i64"))
    at, along = ",".join(axes), axes[dim]
    place = list(axes)
    if rng.random() < 0.3:  # read from the end
        place[dim] = f"{shape[dim] - 1}-{along}"
    value = rng.choice(("X[{}]", "X[{}] * M[{}]", "X[{}] + 1", "where(M[{}] > 0, X[{}], 0)"))
    value = value.replace("{}", ",".join(place))
    if rng.random() < 0.4 and shape[dim] <= 65:
        value = f"where({along} >= 3, {value}, 0)"
    function = rng.choice(("cumsum", "cumsum", "cummax", "cummin", "cumprod"))
    if function == "cumprod" and (not dtype.startswith("f") or shape[dim] > 33):
        function = "cumsum"  # long products overflow
    words = "".join(f", {word}" for word in ("reverse", "exclusive") if rng.random() < 0.4)
    text = f"S[{at}] = {function}({value}, {along}{words})"
    if rng.random() < 0.5:
        after = rng.choice(("S[{}] * 2", "S[{}] + W[{}]", "max(S[{}], 0) - S[{}]"))
        text += f"; Y[{at}] = {after.replace('{}', at)}"
        if rng.random() < 0.3:
            text += f"; Z[{at}] = S[{at}] + 1"
    sizes = tuple(shape)
    tensors = {name: (dtype, sizes) for name in "XMW" if f"{name}[" in text}
    return from_notation(text, tensors)


def random_masked(rng: random.Random) -> Workload:
    """A product of which a condition keeps a triangle, a band or the blocks on the diagonal."""
    rows, columns, depth = (rng.choice(EXTENTS) for _ in range(3))
    first, width = rng.randint(-2, 2), rng.randint(0, 3)
    lower, upper = f"k >= i + {first}", f"k <= i + {first + width}"
    cond = rng.choice((lower, upper, f"{lower} && {upper}", "k//3 == i//3"))
    text = f"Y[i,j] += where({cond}, A[i,k], 0) * B[k,j]"
    tensors = {"A": ("f32", (rows, depth)), "B": ("f32", (depth, columns))}
    return from_notation(text, tensors)


def random_filter(rng: random.Random) -> Workload:
    """A convolution that is mostly of the structure rewrites look for, and may have an error;
    WorkloadError where sizes do not fit."""
    name = rng.choice(("conv1d_nlc", "conv2d_nhwc", "conv3d_ndhwc", "conv2d_nhwc_bn_relu"))
    sizes = {"CI": (1, 2, 3, 5), "CO": (1, 3, 8, 17), "pad": (0, 1, 2), "K": (3, 3, 3, 5)}
    sizes |= {"stride": (1, 1, 1, 2)}
    images = {param.name for param in OPERATORS[name].params} & {"D", "H", "W", "L"}
    params: dict[str, object] = {n: rng.choice(values) for n, values in sizes.items()}
    params |= {n: rng.choice((2, 3, 4, 6, 7, 9)) for n in sorted(images)}
    dtype = rng.choice(("f32", "f32", "f64"))
    epilogue = rng.choice(("", "bias", "bias+relu", "add")) if OPERATORS[name].epilogues else ""
    found = build(name, params, dtype=dtype, epilogue=epilogue)
    return found.allowing(rng.choice((1e-5, 1e-3, 0.3, 0.9)))


def with_constants(rng: random.Random, workload: Workload) -> Workload:
    """Half of the time as it is, otherwise with some inputs marked constant."""
    if rng.random() < 0.5:
        return workload
    inputs = tuple(replace(t, constant=rng.random() < 0.6) for t in workload.inputs)
    return replace(workload, inputs=inputs)


def random_operator(rng: random.Random) -> Workload:
    """An operator of the library, every size drawn anew; WorkloadError where sizes do not fit."""
    op = OPERATORS[rng.choice(sorted(OPERATORS))]
    params: dict[str, object] = {}
    for param in op.params:
        if param.default is not None and rng.random() < 0.5:
            continue
        small = param.name in ("stride", "pad", "dilation", "groups") or len(param.per_axis) > 1
        params[param.name] = rng.choice((1, 2, 3)) if small else rng.choice(EXTENTS)
        if param.minimum == 0 and rng.random() < 0.5:
            params[param.name] = rng.choice((0, 1))
        if param.name in ("H", "W", "L", "D"):
            params[param.name] = rng.choice(EXTENTS[2:7])
    dtype = rng.choice(op.dtypes) if rng.random() < 0.5 else op.dtypes[0]
    epilogue = ""
    if op.epilogues and dtype in ("f32", "f64") and rng.random() < 0.5:
        epilogue = rng.choice(("bias", "relu", "bias+relu6", "add", "bias+gelu"))
    return build(op.name, params, dtype=dtype, epilogue=epilogue)


def random_expression(rng: random.Random) -> Workload:
    """Statements nobody has named: one to three stages with random indices, guards and reducers."""
    return _Expressions(rng).workload()


_FUNCTIONS = (
    "tanh", "abs", "sigmoid", "floor", "ceil", "round", "trunc", "erf", "sin", "cos", "expm1",
    "tan", "atan", "sinh", "cosh", "asinh", "exp2", "cbrt", "softplus", "sign",
)  # fmt: skip
_ONE_TYPE = ("f32", "f32", "f32", "f64", "i32", "i64", "i8", "u8", "bf16")


class _Expressions:
    """Writes index notation. Every index name has a stated range: reads outside are zero."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.dtype = rng.choice(_ONE_TYPE)
        self.extents: dict[str, int] = {}
        self.tensors: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.computed: dict[str, tuple[int, ...]] = {}
        self.gathers = rng.random() < 0.25

    def workload(self) -> Workload:
        count = self.rng.choice((1, 1, 2, 2, 3))
        text = "; ".join([self._statement(number) for number in range(count)])
        used = {n: e for n, e in self.extents.items() if _occurs(n, text)}
        inputs = {n: t for n, t in self.tensors.items() if f"{n}[" in text}
        return from_notation(text, inputs, used)

    def _axes(self, prefix: str, number: int, count: int, most: int) -> list[str]:
        names = [f"{prefix}{number}{'abcd'[n]}" for n in range(count)]
        total = 1
        for name in names:
            fitting = [e for e in EXTENTS if total * e <= most] or [1]
            self.extents[name] = self.rng.choice(fitting)
            total *= self.extents[name]
        return names

    def _statement(self, number: int) -> str:
        rng = self.rng
        if rng.random() < 0.08:
            return self._whole(number)
        axes = self._axes("x", number, rng.choice((1, 2, 2, 2, 3, 4)), 4096)
        space = prod(self.extents[a] for a in axes)
        reduces = self._axes("k", number, rng.choice((0, 1, 1, 1, 2, 3)), max(1, 65536 // space))
        value = self._value(axes, reduces)
        name = f"T{number}"
        self.computed[name] = tuple(self.extents[a] for a in axes)
        assign = rng.choice(("+=", "+=", "+=", "max=", "min=")) if reduces else "="
        if rng.random() < 0.15:  # a tensor of bools, or their count
            value = f"({value}) > {rng.choice(('0', '1', self._single(self.dtype)))}"
        return f"{name}[{','.join(axes)}] {assign} {value}"

    def _whole(self, number: int) -> str:
        """A reduction over all axes, to a tensor without dimensions."""
        reduces = self._axes("k", number, self.rng.choice((1, 2)), 4096)
        name = f"T{number}"
        self.computed[name] = ()
        return f"{name}[] {self.rng.choice(('+=', 'max=', 'min='))} {self._plain_read(reduces)}"

    def _value(self, axes: list[str], reduces: list[str]) -> str:
        """An expression that uses every reduction axis at least once."""
        rng = self.rng
        reads = [self._read(axes, reduces) for _ in range(rng.choice((1, 1, 2, 2, 3)))]
        missing = [k for k in reduces if not any(_occurs(k, r) for r in reads)]
        if missing:
            reads.append(self._plain_read([*rng.sample(axes, min(1, len(axes))), *missing]))
        text = reads[0]
        for other in reads[1:]:
            text = rng.choice((f"{text} * {other}", f"{text} * {other}", f"{text} + {other}"))
        form = rng.random()
        if form < 0.2:
            text = f"where({self._condition(axes, reduces)}, {text}, 0)"
        elif form < 0.3:
            text = f"where({self._condition(axes, reduces)}, {text}, {reads[0]} + 1)"
        elif form < 0.4:
            text = f"max({text}, 0)"
        elif form < 0.5 and self.dtype in ("f32", "f64"):
            text = f"{rng.choice(_FUNCTIONS)}({text})"
            if rng.random() < 0.3:
                other = rng.choice((reads[-1], "1.5", "2"))
                text = rng.choice((f"atan2({text}, {other})", f"abs({text}) ** {other}"))
        elif form < 0.55:
            text = f"where({reads[0]} > {reads[-1]}, {text}, 2)"
        elif form < 0.6 and self.dtype in ("f32", "i32"):
            text = f"{text} + {rng.choice(axes)}"
        if self.dtype in ("i8", "u8", "i32", "i64") and rng.random() < 0.4:
            sign = rng.choice(("&", "|", "^", "<<", ">>", "//", "%"))
            text = f"({text}) {sign} {rng.choice((reads[-1], '3', '5', str(rng.choice(axes))))}"
        if reduces and rng.random() < 0.15:
            read = self._divided_read(axes, reduces) if rng.random() < 0.4 else reads[0]
            text = f"where({self._congruence(axes, reduces)}, {read}, 0) * ({text})"
        if rng.random() < 0.15:
            text = self._scan(text, axes, reduces)
        if rng.random() < 0.15:
            text = f"({text}) * {self._single(self.dtype)}"
        if rng.random() < 0.15:
            flag = rng.choice((self._flags(axes, reduces), self._single("bool")))
            text = f"where({flag} || {self._condition(axes, reduces)}, {text}, 0)"
        return text

    def _single(self, dtype: str) -> str:
        """A number or a bool that is given at the call."""
        name = f"A{len(self.tensors)}"
        self.tensors[name] = (dtype, ())
        return f"{name}[]"

    def _flags(self, axes: list[str], reduces: list[str]) -> str:
        """A read of a tensor of bools."""
        pool = [a for a in (*axes, *reduces) if self.rng.random() < 0.7][:4] or axes[:1]
        name = f"A{len(self.tensors)}"
        self.tensors[name] = ("bool", tuple(self.extents[p] for p in pool))
        return f"{name}[{','.join(pool)}]"

    def _scan(self, text: str, axes: list[str], reduces: list[str]) -> str:
        """Running results of `text` along any axis. Products are left out: long ones overflow."""
        rng = self.rng
        function = rng.choice(("cumsum", "cumsum", "cummax", "cummin"))
        words = "".join(f", {word}" for word in ("reverse", "exclusive") if rng.random() < 0.3)
        along = rng.choice([*axes, *axes, *reduces])
        return f"{function}({text}, {along}{words})"

    def _congruence(self, axes: list[str], reduces: list[str]) -> str:
        """An equation that leaves a reduction axis few values, or one."""
        rng = self.rng
        a, k, n = rng.choice(axes), rng.choice(reduces), rng.choice((2, 3, 4, 6))
        step, offset = rng.choice(("", "", "2*", "3*", "5*")), rng.randint(0, 4)
        sign = rng.choice("+-")
        forms = (
            f"({a} {sign} {step}{k} + {offset}) % {n} == 0",
            f"({k} {sign} {step}{a} + {offset}) % {n} == {n - 1}",
            f"{n}*{a} + {offset} == {k}",
            f"{n}*{k} + {offset} == {a}",
        )
        return rng.choice((*forms[:2], *forms))

    def _condition(self, axes: list[str], reduces: list[str]) -> str:
        rng = self.rng
        names = [*axes, *reduces]
        a, b = rng.choice(names), rng.choice(names)
        return rng.choice(
            (f"{a} >= {b}", f"{a} + 1 < {b}", f"{a} % 2 == 0", f"{a} == {b}", f"{a} + {b} < 9")
        )

    def _read(self, axes: list[str], reduces: list[str]) -> str:
        rng = self.rng
        if self.computed and rng.random() < 0.6:
            name = rng.choice(sorted(self.computed))
            rank = len(self.computed[name])
            pool = [*axes, *reduces]
            index = [self._index(pool, rng.choice(pool)) for _ in range(rank)]
            return f"{name}[{','.join(index)}]"
        pool = [a for a in (*axes, *reduces) if rng.random() < 0.7][:4] or axes[:1]
        rng.shuffle(pool)
        if rng.random() < 0.6:
            return self._plain_read(pool)
        name = f"A{len(self.tensors)}"
        index = [self._index([*axes, *reduces], p) for p in pool]
        shape = tuple(min(rng.choice(EXTENTS), 33) for _ in pool)
        self.tensors[name] = (self.dtype, shape)
        return f"{name}[{','.join(index)}]"

    def _plain_read(self, pool: list[str]) -> str:
        name = f"A{len(self.tensors)}"
        self.tensors[name] = (self.dtype, tuple(self.extents[p] for p in pool))
        return f"{name}[{','.join(pool)}]"

    def _divided_read(self, axes: list[str], reduces: list[str]) -> str:
        """A read by a quotient or a remainder of an axis, as grouped convolutions have. With a
        congruence, the axis is then split twice."""
        name, axis, k = f"A{len(self.tensors)}", self.rng.choice(axes), self.rng.choice(reduces)
        n = self.rng.choice((2, 3, 4))
        by, extent = self.rng.choice((("//", -(-self.extents[axis] // n)), ("%", n)))
        self.tensors[name] = (self.dtype, (extent, self.extents[k]))
        return f"{name}[{axis}{by}{n},{k}]"

    def _data(self, pool: list[str]) -> str:
        """An integer of a tensor as an index, with each policy for those outside."""
        rng = self.rng
        name = f"I{len(self.tensors)}"
        axes = rng.sample(pool, min(len(pool), rng.choice((1, 1, 2))))
        shape = tuple(self.extents[a] for a in axes)
        self.tensors[name] = (rng.choice(("i32", "i32", "i64", "i8", "u8")), shape)
        read = f"{name}[{','.join(axes)}]"
        if rng.random() < 0.2:
            read = self._data([*axes, rng.choice(pool)]).join((f"{name}[", "]"))
            self.tensors[name] = (self.tensors[name][0], (rng.choice(EXTENTS),))
        value = rng.choice(("{0}", "{0}", "{0}", "{0} + {1}", "2*{0} - 1", "({0} >> 2) & 7"))
        policy = rng.choice(("{0}", "{0}", "zero({0})", "clamp({0})", "wrap({0})"))
        return policy.format(value.format(read, rng.choice(pool)))

    def _index(self, pool: list[str], axis: str) -> str:
        if self.gathers and self.rng.random() < 0.4:
            return self._data(pool)
        other = self.rng.choice(pool)
        plain = [axis, axis, axis, "0", f"{axis}+1", f"{axis}-1", f"2*{axis}"]
        mixed = [f"{axis}+{other}", f"2*{axis}+{other}-1", f"{axis}-{other}"]
        return self.rng.choice([*plain, *mixed, f"{axis}//2", f"{axis}%3"])


def _occurs(name: str, text: str) -> bool:
    padded = f" {text} "
    at = padded.find(name)
    while at > 0:
        after = padded[at + len(name)]
        if not (after.isalnum() or after == "_"):
            return True
        at = padded.find(name, at + 1)
    return False
