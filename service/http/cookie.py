"""Where a browser keeps the key that its user typed in at `/login`."""

COOKIE = "tilewright_key"
