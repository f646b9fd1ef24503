"""`session.auto_tune_mode`: which forms of the operators, and how many threads, are fastest on this machine."""
