"""Who may do what: keys of the API, what they open, how much one owner may ask for."""
