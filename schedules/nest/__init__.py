"""The loop nest: its nodes, printer and verifiers, and functions that search and edit nests."""
