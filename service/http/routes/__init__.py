"""The routes of `/v1` and the operational routes. They raise errors, which
`tilewright.service.problems` maps to status codes."""
