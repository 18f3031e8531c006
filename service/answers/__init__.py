"""From stored records to answers: grades, lookups, files for builds, verification."""
