"""The sketch of stages that read neighbouring elements of each other, as in image pipelines."""
