"""The loop nest: its nodes, its printer, its verifiers, and how it is searched and edited."""
