"""One module a verb: a request, a result, one function of both. All faces call these."""
