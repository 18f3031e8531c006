"""Jobs: their states, leases, history and owners; and the keys of the API."""
