"""Back ends, one package per kind of machine. A new one is a package next to `cpu`."""
