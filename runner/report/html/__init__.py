"""`runner report`: one page of HTML about a run, several runs or a sweep, that needs nothing but itself."""
