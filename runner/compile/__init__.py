"""Floor 5: from a graph to a model that runs on a device."""
