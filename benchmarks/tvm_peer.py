"""TVM MetaSchedule on a case: `PYTHON -m benchmarks.tvm_peer NAME THREADS TRIALS FOLDER`.

Runs in an environment of its own (apache-tvm, apache-tvm-ffi, xgboost-cpu, cloudpickle, psutil;
no PyTorch) and imports nothing of ours but `schedules` and the cases. The workload's stages become
`te.compute` one by one, so every case works, expressions included. FOLDER gets `tvm.so`; prints
one JSON document. `side` is what a contestant under that interpreter times.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, assert_never

from benchmarks.suite.registry import every_case, workload_of
from tilewright.schedules.algebra.affine import (
    Affine,
    Datum,
    FloorDiv,
    Interval,
    Mod,
    Var,
    interval,
)
from tilewright.schedules.algebra.comparisons import Cond, Eq0, Ge0
from tilewright.schedules.algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Const,
    IndexValue,
    Load,
    Reducer,
    Scalar,
    Select,
    Unary,
)
from tilewright.schedules.workload.tensors import (
    Elementwise,
    Reduction,
    Scan,
    Stage,
    TupleReduction,
)
from tilewright.schedules.workload.workload import Workload

SEED = 0
TRIALS_A_ROUND = 64
LIBRARY = "tvm.so"
_TYPES = {"f32": "float32", "f64": "float64", "i32": "int32", "i64": "int64", "i8": "int8",
          "u8": "uint8"}  # fmt: skip


class Translation:
    """A workload as TVM tensors. Reads beyond an input's edge become a padded copy of their own,
    which is how TVM's own operators write them."""

    def __init__(self, workload: Workload) -> None:
        from tvm import te  # type: ignore[import-not-found]

        self._te = te
        self._workload = workload
        self._tensors: dict[str, Any] = {
            t.name: te.placeholder(t.shape, name=t.name, dtype=_TYPES[t.dtype])
            for t in workload.inputs
        }
        for stage in workload.stages:
            self._tensors[stage.name] = self._stage(stage)

    def function(self) -> Any:
        """A TIR function of the inputs and outputs, in the workload's order."""
        names = [t.name for t in self._workload.arguments]
        return self._te.create_prim_func([self._tensors[name] for name in names])

    def _stage(self, stage: Stage) -> Any:
        te = self._te
        ranges = {a.name: Interval(0, a.extent - 1) for a in stage.all_axes}
        body = self._padded(stage.body, ranges)
        reduced = {a.name: te.reduce_axis((0, a.extent), name=a.name) for a in stage.reduce_axes}

        def element(*index: Any) -> Any:
            env = {a.name: i for a, i in zip(stage.axes, index, strict=True)}
            env |= {name: axis.var for name, axis in reduced.items()}
            value = self._scalar(body, env)
            match stage.kind:
                case Elementwise():
                    return value
                case Reduction(reducer):
                    return _reducer(te, reducer)(value, axis=list(reduced.values()))
                case Scan():
                    raise NotImplementedError("no translation of scans to TVM")
                case TupleReduction():
                    raise NotImplementedError("no translation of reductions of tuples to TVM")
                case _:
                    assert_never(stage.kind)

        return te.compute(stage.tensor.shape, element, name=stage.name)

    def _padded(self, node: Scalar, ranges: Mapping[str, Interval]) -> Scalar:
        """`node` with every guarded read that is plain padding replaced by one of a padded copy."""
        from tilewright.schedules.algebra.scalar import rewrite

        def leaf(n: Scalar) -> Scalar | None:
            match n:
                case Select(All(conds), Load() as read, Const() as outside):
                    return self._padded_read(conds, read, outside, ranges)
                case _:
                    return None

        return rewrite(node, leaf)

    def _padded_read(
        self, conds: Sequence[Cond], read: Load, outside: Const, ranges: Mapping[str, Interval]
    ) -> Scalar | None:
        te, source = self._te, self._tensors[read.tensor]
        shape = [int(extent) for extent in source.shape]
        allowed = {Ge0(i) for i in read.index}
        allowed |= {Ge0(e - 1 - i) for i, e in zip(read.index, shape, strict=True)}
        if not set(conds) <= allowed:
            return None
        spans = [interval(i, ranges) for i in read.index]
        before = [max(0, -span.lo) for span in spans]
        after = [max(0, s.hi - e + 1) for s, e in zip(spans, shape, strict=True)]
        name = f"{read.tensor}_padded_{len(self._tensors)}"

        def element(*index: Any) -> Any:
            at = [i - b for i, b in zip(index, before, strict=True)]
            sides = zip(at, shape, before, after, strict=True)
            inside = [c for i, e, b, a in sides for c in ([i >= 0] * bool(b) + [i < e] * bool(a))]
            fill = te.const(outside.value, _TYPES[outside.dtype])
            return te.if_then_else(te.all(*inside), source[tuple(at)], fill)

        padded = tuple(b + e + a for b, e, a in zip(before, shape, after, strict=True))
        self._tensors[name] = te.compute(padded, element, name=name)
        index = tuple(i + b for i, b in zip(read.index, before, strict=True))
        return Load(name, index, read.dtype)

    def _scalar(self, node: Scalar, env: Mapping[str, Any]) -> Any:
        te = self._te
        match node:
            case Const():
                return te.const(node.value, _TYPES[node.dtype])
            case Load():
                return self._tensors[node.tensor][tuple(_index(te, i, env) for i in node.index)]
            case IndexValue():
                return _index(te, node.index, env).astype(_TYPES[node.dtype])
            case Cast():
                return self._scalar(node.x, env).astype(_TYPES[node.dtype])
            case Unary():
                x = self._scalar(node.x, env)
                return -x if node.op == "neg" else getattr(te, node.op)(x)
            case Binary():
                return _BINARY[node.op](te, self._scalar(node.a, env), self._scalar(node.b, env))
            case Select(All(conds)):
                sides = (self._scalar(side, env) for side in (node.on_true, node.on_false))
                return te.if_then_else(te.all(*(_condition(te, c, env) for c in conds)), *sides)
            case _:
                raise NotImplementedError(f"no translation of {type(node).__name__} to TVM")


_BINARY: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    BinaryOp.ADD: lambda te, a, b: a + b,
    BinaryOp.SUB: lambda te, a, b: a - b,
    BinaryOp.MUL: lambda te, a, b: a * b,
    BinaryOp.DIV: lambda te, a, b: te.div(a, b),
    BinaryOp.MIN: lambda te, a, b: _elementwise("min", a, b),
    BinaryOp.MAX: lambda te, a, b: _elementwise("max", a, b),
}


def _elementwise(name: str, a: Any, b: Any) -> Any:
    """`te.max` and `te.min` are reducers; those of two values are nodes of TIR."""
    from tvm import tirx

    return getattr(tirx, name.capitalize())(a, b)


def _reducer(te: Any, reducer: Reducer) -> Any:
    if reducer is Reducer.PROD:
        raise NotImplementedError("no translation of products over an axis to TVM")
    return getattr(te, reducer)


def _index(te: Any, index: Affine, env: Mapping[str, Any]) -> Any:
    total: Any = index.const
    for atom, coefficient in index.terms:
        match atom:
            case Var(name):
                value = env[name]
            case FloorDiv(numerator, divisor):
                value = te.floordiv(_index(te, numerator, env), divisor)
            case Mod(numerator, divisor):
                value = te.floormod(_index(te, numerator, env), divisor)
            case Datum():
                raise NotImplementedError("no translation of gathers to TVM")
        total = value * coefficient + total
    return total


def _condition(te: Any, cond: Cond, env: Mapping[str, Any]) -> Any:
    value = _index(te, cond.index, env)
    return value == 0 if isinstance(cond, Eq0) else value >= 0


def tune(workload: Workload, threads: int, trials: int, folder: Path) -> dict[str, Any]:
    """MetaSchedule's best of `trials` as FOLDER/tvm.so; its own median, and the time it took."""
    import tvm
    from tvm.s_tir import meta_schedule  # type: ignore[import-not-found]
    from tvm.target import codegen  # type: ignore[import-not-found]

    os.environ["TVM_NUM_THREADS"] = str(threads)
    cpu = codegen.llvm_get_system_cpu()
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": threads})
    function = Translation(workload).function()
    start = time.perf_counter()
    database = meta_schedule.tune_tir(
        mod=function, target=target, work_dir=str(folder / "tvm"), max_trials_global=trials,
        num_trials_per_iter=min(trials, TRIALS_A_ROUND), num_tuning_cores="physical", seed=SEED,
    )  # fmt: skip
    tune_secs = time.perf_counter() - start
    schedule = meta_schedule.tir_integration.compile_tir(database, function, target)
    if schedule is None:
        return {"missing": "TVM found no schedule that works", "tune_secs": tune_secs}
    tvm.compile(schedule.mod, target=target).export_library(str(folder / LIBRARY))
    times = [float(s) for r in database.get_all_tuning_records() for s in r.run_secs or []]
    return {
        "library": str(folder / LIBRARY), "version": tvm.__version__, "cpu": cpu,
        "trials": trials, "tune_secs": tune_secs, "best_secs": min(times, default=None),
    }  # fmt: skip


class TvmSide:
    """A tuned function; TVM's own evaluator times it, without Python between the calls."""

    def __init__(self, library: str, inputs: Sequence[Any], output: Any) -> None:
        import tvm

        self._module = tvm.runtime.load_module(library)
        self._arguments = [tvm.runtime.from_dlpack(a) for a in (*inputs, output)]
        self._output = output

    def result(self) -> Any:
        return self._output

    def time(self, calls: int, rounds: int) -> list[float]:
        """Seconds a call in each of `rounds` rounds of `calls`."""
        import tvm

        evaluator = self._module.time_evaluator("main", tvm.cpu(), number=calls, repeat=rounds)
        return [float(secs) for secs in evaluator(*self._arguments).results]


def main() -> None:
    name, threads, trials, folder = sys.argv[1:]
    workload = workload_of(every_case()[name])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # TVM writes its tables to stdout
    Path(folder).mkdir(parents=True, exist_ok=True)
    found = tune(workload, int(threads), int(trials), Path(folder))
    answers.write(json.dumps(found) + "\n")
    answers.close()


if __name__ == "__main__":
    main()
