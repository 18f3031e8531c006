"""The API: the application, its routes, and what stands around every request."""
