"""Loading of an object file into this process, as code that can be called."""
