"""Access control: API keys, their scopes, and rates per owner."""
