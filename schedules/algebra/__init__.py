"""Index arithmetic and scalar expressions: values, their type rules, their text."""
