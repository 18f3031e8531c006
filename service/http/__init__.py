"""The HTTP API: the application, its routes and its middleware."""
