"""Floor 3: the two interpreters, and differentiation, which works in both."""
