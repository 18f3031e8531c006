"""Facts of a stage that rules look at: loops, reads, phases, and which sketches they suit."""
