"""`runner export`: what a run has trained, for other programs. `command` has the table of formats."""
