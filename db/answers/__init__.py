"""What answers are made of: the evidence on a work, and what was prepared without tuning."""
