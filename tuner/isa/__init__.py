"""Properties of instruction sets: what generated code may use, and how CPU features are detected.
Single instructions are rows of `schedules/nest/instructions.py`."""
