"""Jobs: their life, leases, history and owners; and the keys of the API."""
