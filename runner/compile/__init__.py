"""Floor 5: from a traced graph to an open session."""
