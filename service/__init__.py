"""WHO ASKS: the command line, the API with its pages, jobs, the client, files for builds."""
