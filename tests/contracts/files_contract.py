"""Blobs, and the files of a record, which are blobs with a name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.contracts.store_values import FILES, a_record
from tilewright.db import Store
from tilewright.db.errors import BlobTooLarge, NotRegistered
from tilewright.db.values.records import ArtefactFile


class FilesContract:
    """Bytes that are named by their content."""

    def test_blobs_are_named_by_their_content(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        name = store.put_blob(b"\x7fELF", "application/x-object")
        assert name == store.put_blob(b"\x7fELF", "application/x-object")
        blob = store.blob(name)
        assert blob is not None
        assert (blob.data, blob.media_type) == (b"\x7fELF", "application/x-object")
        assert store.blob("0" * 64) is None
        damage("UPDATE blob SET data = x'00'")
        assert store.blob(name) is None
        assert [p.kind for p in store.check()] == ["blob"]
        assert store.put_blob(b"\x7fELF", "application/x-object") == name
        assert store.blob(name) is not None

    def test_a_blob_has_a_limit(self, store: Store) -> None:
        with pytest.raises(BlobTooLarge, match="at most 4194304 bytes, got 4194305"):
            store.put_blob(bytes(4 * 1024 * 1024 + 1), "x")
        assert store.counts().blobs == 0

    def test_a_record_names_its_files(self, store: Store) -> None:
        store.add([a_record(1), a_record(2)])
        first, second = a_record(1).key, a_record(2).key
        kept = store.add_artefacts(first, FILES)
        assert [(a.kind, a.name, a.bytes) for a in kept] == [
            ("header", "neg.h", 7), ("object", "neg.o", 4),
        ]  # fmt: skip
        assert store.artefacts(first) == kept
        assert store.artefacts(second) == []
        for artefact, file in zip(kept, reversed(FILES), strict=True):
            blob = store.blob(artefact.sha256)
            assert blob is not None
            assert (blob.data, blob.media_type) == (file.data, file.media_type)

    def test_the_first_files_of_a_record_stay(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        store.add([a_record(1)])
        kept = store.add_artefacts(a_record(1).key, FILES)
        other = [ArtefactFile("object", "other.o", "application/x-object", b"other")]
        assert store.add_artefacts(a_record(1).key, other) == kept
        assert store.counts().blobs == 2
        damage("UPDATE blob SET data = x'00'")
        assert sorted(p.kind for p in store.check()) == ["artefact", "artefact", "blob", "blob"]
        assert store.add_artefacts(a_record(1).key, FILES) == kept
        assert store.check() == []

    def test_a_damaged_artefact_is_not_served_and_can_be_stored_again(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        store.add([a_record(1)])
        kept = store.add_artefacts(a_record(1).key, FILES)
        damage("UPDATE artefact SET name = 'evil.o' WHERE kind = 'object'")
        assert [a.kind for a in store.artefacts(a_record(1).key)] == ["header"]
        assert [p.kind for p in store.check()] == ["artefact"]
        assert store.add_artefacts(a_record(1).key, FILES) == kept
        assert store.check() == []

    def test_files_belong_to_a_stored_record_and_are_kept_whole(self, store: Store) -> None:
        with pytest.raises(NotRegistered, match="there is no such record"):
            store.add_artefacts(a_record(1).key, FILES)
        store.add([a_record(1)])
        huge = ArtefactFile("llvm", "neg.ll", "text/x-llvm", bytes(4 * 1024 * 1024 + 1))
        with pytest.raises(BlobTooLarge, match="at most 4194304 bytes"):
            store.add_artefacts(a_record(1).key, [*FILES, huge])
        assert store.artefacts(a_record(1).key) == []
        assert store.counts().blobs == 0

    def test_an_explanation_is_replaced_and_does_not_touch_the_files(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        key = a_record(1).key
        with pytest.raises(NotRegistered, match="there is no such record"):
            store.replace_explanation(key, {})
        store.add([a_record(1)])
        assert store.explanation(key) is None
        store.replace_explanation(key, {"steps": []})
        kept = [*store.artefacts(key), *store.add_artefacts(key, FILES)]
        assert [a.kind for a in store.artefacts(key)] == ["explanation", "header", "object"]
        store.replace_explanation(key, {"steps": [1]})
        assert store.explanation(key) == {"steps": [1]}
        assert [a.kind for a in store.artefacts(key)] == ["explanation", "header", "object"]
        assert len({a.sha256 for a in (*kept, *store.artefacts(key))}) == 4
        assert store.check() == []
        assert store.counts().blobs == 3, "the first explanation is deleted"
        damage("UPDATE blob SET data = x'00'")
        assert store.explanation(key) is None
