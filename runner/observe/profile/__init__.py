"""Floor 2: where the time of a training goes. Loaded only by runs that want to know."""
