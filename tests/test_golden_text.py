"""Golden texts: compared with what was approved, rewritten only when asked to."""

from __future__ import annotations

from pathlib import Path

from tests.support.golden_text import Golden, golden_path


def test_equal_to_what_is_kept_up_to_the_last_newline(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("one\ntwo\n")
    golden = Golden(tmp_path / "t.txt", update=False)
    assert golden == "one\ntwo"
    assert golden == "one\ntwo\n"
    assert golden != "one\ntwo\nthree"


def test_nothing_kept_is_equal_to_nothing_and_stays_so(tmp_path: Path) -> None:
    golden = Golden(tmp_path / "t.txt", update=False)
    assert golden != ""
    assert list(tmp_path.iterdir()) == []
    assert "no golden text" in golden.explain("x")[0]


def test_update_takes_over_what_was_found(tmp_path: Path) -> None:
    path = tmp_path / "new" / "t.txt"
    assert Golden(path, update=True) == "one"
    assert path.read_text() == "one\n"
    assert Golden(path, update=False) == "one"


def test_differences_are_explained(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("one\ntwo\n")
    lines = Golden(tmp_path / "t.txt", update=False).explain("one\nthree")
    assert "--update-golden" in lines[0]
    assert {"-two", "+three"} <= set(lines)


def test_several_texts_of_one_test(tmp_path: Path) -> None:
    golden = Golden(tmp_path / "t.txt", update=True)
    assert golden("before").path == tmp_path / "t.before.txt"
    assert golden("before").update


def test_one_folder_a_test_file_and_one_file_a_test() -> None:
    path = golden_path(Path("golden"), Path("tests/x/test_split.py"), "test_it[7-m=3/a b]")
    assert path == Path("golden/test_split/test_it-7-m=3-a-b.txt")
