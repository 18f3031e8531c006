"""Properties of a stage that rules examine: loops, reads, phases, and roles in sketches."""
