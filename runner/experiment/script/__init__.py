"""Run directories of scripts: `runner.record`, and `runner resume` of such a run."""
