"""Child processes: starting them, exchanging messages with them, limiting them and ending them."""
