"""Index arithmetic and scalar expressions: their values, type rules and text forms."""
