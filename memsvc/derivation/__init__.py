"""From the texts of a session output to statements: rules only, no language model. Pure."""
