"""The table of element types, with one row per type.

A row describes the storage of a type and the type in which its arithmetic is done. Only the
conversions of narrow floats are in other modules: conversions of arrays in `algebra/narrow.py`,
conversions of registers in `tuner/codegen/narrow_floats.py`. `docs/adding.md` describes how to add
a type.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class BinaryFloat:
    """A binary floating-point format as in IEEE 754.

    `precision` is the number of bits of the significand, including the hidden bit. Numbers are
    below 2**`max_exponent`.
    """

    precision: int
    max_exponent: int

    @property
    def largest(self) -> float:
        return (2.0 - 2.0 ** (1 - self.precision)) * 2.0 ** (self.max_exponent - 1)

    @property
    def normal_exponent(self) -> int:
        """Exponent of the smallest normal number."""
        return 2 - self.max_exponent

    @property
    def step_exponent(self) -> int:
        """Exponent of the smallest denormal number."""
        return self.normal_exponent + 1 - self.precision


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """The properties of one type."""

    bits: int
    numpy: str
    """The NumPy name of the stored element type."""
    c: str
    """The C name of the stored element type."""
    llvm: str
    """The LLVM name of the stored element type."""
    wide: str | None = None
    """The type in which sums, products and functions are computed, or None if it is the type
    itself."""
    binary: BinaryFloat | None = None
    is_signed: bool = True


class DType(StrEnum):
    """An element type. Integers wrap modulo 2**bits. Arithmetic on narrow floats is done in f32.
    A bool is stored in a byte, 0 or 1."""

    F32 = "f32"
    F64 = "f64"
    BF16 = "bf16"
    F16 = "f16"
    I64 = "i64"
    I32 = "i32"
    I8 = "i8"
    U8 = "u8"
    BOOL = "bool"

    @property
    def bits(self) -> int:
        return _ROWS[self].bits

    @property
    def bytes(self) -> int:
        """Bytes of one stored element."""
        return max(_ROWS[self].bits // 8, 1)

    @property
    def is_float(self) -> bool:
        return _ROWS[self].binary is not None

    @property
    def is_signed(self) -> bool:
        return _ROWS[self].is_signed

    @property
    def binary(self) -> BinaryFloat:
        """The format of a float type."""
        found = _ROWS[self].binary
        assert found is not None, f"{self} is no float type"
        return found

    @property
    def wide(self) -> DType:
        """The type of arithmetic on this type: of sums, products and functions."""
        wide = _ROWS[self].wide
        return self if wide is None else DType(wide)

    @property
    def stored(self) -> DType:
        """The type of the elements of a tensor of this type in a loop nest: a bool is a byte."""
        return DType.U8 if self is DType.BOOL else self

    @property
    def is_narrow_float(self) -> bool:
        """Whether this is a float type in which numbers are stored but no arithmetic is done."""
        return _ROWS[self].binary is not None and _ROWS[self].wide is not None

    @property
    def integer_range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer or bool type."""
        values = 1 << _ROWS[self].bits
        return (-values // 2, values // 2 - 1) if self.is_signed else (0, values - 1)

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy type of a buffer; a type that NumPy does not have is stored as its bits."""
        import numpy as np  # Start-up: not needed to parse, hash or look up a workload

        return np.dtype(_ROWS[self].numpy)

    @property
    def c(self) -> str:
        """The C type of an element in a buffer."""
        return _ROWS[self].c

    @property
    def llvm(self) -> str:
        """The LLVM type of a value; narrow floats are represented by their bits."""
        return _ROWS[self].llvm


_ROWS = {
    DType.F32: _Row(bits=32, numpy="float32", c="float", llvm="float", binary=BinaryFloat(24, 128)),
    DType.F64: _Row(
        bits=64, numpy="float64", c="double", llvm="double", binary=BinaryFloat(53, 1024)
    ),
    DType.BF16: _Row(
        bits=16, numpy="uint16", c="uint16_t", llvm="i16", wide="f32", binary=BinaryFloat(8, 128)
    ),
    DType.F16: _Row(
        bits=16, numpy="float16", c="uint16_t", llvm="i16", wide="f32", binary=BinaryFloat(11, 16)
    ),
    DType.I64: _Row(bits=64, numpy="int64", c="int64_t", llvm="i64"),
    DType.I32: _Row(bits=32, numpy="int32", c="int32_t", llvm="i32"),
    DType.I8: _Row(bits=8, numpy="int8", c="int8_t", llvm="i8", wide="i32"),
    DType.U8: _Row(bits=8, numpy="uint8", c="uint8_t", llvm="i8", wide="i32", is_signed=False),
    DType.BOOL: _Row(bits=1, numpy="bool", c="uint8_t", llvm="i1", wide="i32", is_signed=False),
}
NUMBERS = tuple(dtype for dtype in DType if dtype is not DType.BOOL)
"""The types of numbers: all types except bool."""
FLOATS = tuple(dtype for dtype in NUMBERS if dtype.is_float)
