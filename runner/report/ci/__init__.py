"""For continuous integration: numbers that must stay, JUnit files, annotations of GitHub."""
