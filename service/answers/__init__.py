"""Answers from stored records: grades, lookups, files for builds, verification."""
