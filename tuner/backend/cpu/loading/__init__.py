"""From an object file to code in this process that can be called."""
