"""How processes of ours are started, speak to each other, are limited and are ended."""
