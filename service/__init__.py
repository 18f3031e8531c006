"""The front ends: command line, HTTP API with its pages, jobs, client, files for builds."""
