"""Connections, transactions, tables, locks and the schema, for SQLite and PostgreSQL."""
