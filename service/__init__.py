"""The user interfaces: command line, HTTP API with its pages, jobs, client, files for builds."""
