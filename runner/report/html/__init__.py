"""`runner report`: a self-contained HTML page about a run, several runs or a sweep."""
