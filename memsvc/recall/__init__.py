"""From a query to ranked memories."""
