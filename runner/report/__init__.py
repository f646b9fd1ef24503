"""Reports about runs, read from their run directories: lists, comparisons, HTML pages, files for CI."""
