"""The routes of `/v1` and the operational ones. They hold no query and know no status codes of
errors: they raise, `tilewright.service.problems` says how."""
