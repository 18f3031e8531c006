"""The routes of `/v1` and the operational ones. They contain no queries and no status codes of
errors: they raise errors, which `tilewright.service.problems` maps."""
