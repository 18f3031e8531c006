"""A row in PyTorch: eager calls and `torch.compile`, with plain and with channels-last tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._inductor import config
from torch.nn import functional

from benchmarks.collection.row import Row
from benchmarks.collection.serving import inputs_of
from tilewright.peers.variants import PeerVariant

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


class TorchSide:
    """The ways of calling a row. All calls are in inference mode."""

    def __init__(self, row: Row, seed: int, threads: int) -> None:
        torch.set_num_threads(threads)
        torch._dynamo.reset()  # otherwise the compiler gives up after a few rows
        self._row, self._threads = row, threads
        arrays = inputs_of(row, seed)
        masks = [each.values == "mask" for each in row.inputs]
        self._tensors = [
            torch.from_numpy(a).bool() if mask else torch.from_numpy(a)
            for a, mask in zip(arrays, masks, strict=True)
        ]
        wide = [t.double() if t.is_floating_point() else t for t in self._tensors]
        self.expected: np.ndarray[Any, Any] = self._call(wide)().numpy()

    def reference(self, file: str) -> dict[str, Any]:
        """Save the result in float64."""
        np.save(Path(file), self.expected)
        return {"torch": torch.__version__}

    def eager(self) -> list[PeerVariant]:
        return [
            PeerVariant(f"eager{layout}", lambda t=tensors: self._call(t))  # type: ignore[misc]
            for layout, tensors in self._layouts()
        ]

    def compiled(self) -> list[PeerVariant]:
        return [
            PeerVariant(f"compiled{layout}", lambda t=tensors: self._compiled(t))  # type: ignore[misc]
            for layout, tensors in self._layouts()
        ]

    def _layouts(self) -> Iterator[tuple[str, list[Any]]]:
        yield "", self._tensors
        if any(t.ndim in _CHANNELS_LAST for t in self._tensors):
            yield (
                ", channels last",
                [
                    t.contiguous(memory_format=_CHANNELS_LAST[t.ndim])
                    if t.ndim in _CHANNELS_LAST
                    else t
                    for t in self._tensors
                ],
            )

    def _call(self, tensors: list[Any]) -> Callable[[], Any]:
        function = self._row.torch
        call: Callable[[], Any] = torch.inference_mode()(lambda: function(functional, *tensors))
        return call

    def _compiled(self, tensors: list[Any]) -> Callable[[], Any]:
        function = self._row.torch

        def computed(*given: Any) -> Any:
            return function(functional, *given)

        made = torch.compile(computed, dynamic=False)
        settings = {
            "compile_threads": 1,
            "cpp.threads": self._threads,
            "cpp.dynamic_threads": False,
        }
        call: Callable[[], Any] = torch.inference_mode()(lambda: made(*tensors))
        with config.patch(settings):
            call()
        return call
