from __future__ import annotations

import pytest

from benchmarks import call_overhead


def test_each_call_is_timed_with_the_same_arrays_and_with_fresh_ones(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["call_overhead", "--calls", "3", "--turns", "1"])
    call_overhead.main()
    lines = capsys.readouterr().out.splitlines()
    names = [line[:26].strip() for line in lines]
    assert names[:2] == ["call", "np.add(a, b, out=c)"]
    assert {"kernel(a, b, out=c)", "kernel(a, b)", "bound()"} < set(names)
    assert all(line.count(" ns ") == 2 for line in lines[1:])
