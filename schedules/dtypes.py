"""Element types: what a tensor holds and what arithmetic on it means."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


class DType(StrEnum):
    """An element type. Integers wrap modulo 2**bits; bf16 is stored, computed in f32."""

    F32 = "f32"
    F64 = "f64"
    BF16 = "bf16"
    I64 = "i64"
    I32 = "i32"
    I8 = "i8"
    U8 = "u8"
    BOOL = "bool"

    @property
    def bits(self) -> int:
        return _BITS[self]

    @property
    def bytes(self) -> int:
        """Bytes of one stored element."""
        return max(_BITS[self] // 8, 1)

    @property
    def is_float(self) -> bool:
        return self in _FLOATS

    @property
    def is_signed(self) -> bool:
        return self in _FLOATS or self in (DType.I64, DType.I32, DType.I8)

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy type of a buffer of this type; bf16 is kept as its 16 bits, in uint16."""
        import numpy as np  # not needed to spell, hash or look up a workload, and slow to import

        return np.dtype(_NUMPY[self])


_FLOATS = frozenset({DType.F32, DType.F64, DType.BF16})
_BITS = {
    DType.F32: 32, DType.F64: 64, DType.BF16: 16, DType.I64: 64,
    DType.I32: 32, DType.I8: 8, DType.U8: 8, DType.BOOL: 1,
}  # fmt: skip
_NUMPY = {
    DType.F32: "float32", DType.F64: "float64", DType.BF16: "uint16", DType.I64: "int64",
    DType.I32: "int32", DType.I8: "int8", DType.U8: "uint8", DType.BOOL: "bool",
}  # fmt: skip
