"""The jobs that wait or run in Slurm's queue, as `squeue` lists them."""

import os
import shutil
import subprocess

from runner.errors import ConfigError, StorageError

SECONDS = 60  # to answer


def listed() -> frozenset[str]:
    """The ids of this user's jobs that have not ended, elements of arrays as `12_3`.

    Raises ConfigError where there is no Slurm, StorageError when its controller does not answer.
    """
    what, hint = "Slurm's queue cannot be read", "--force does not read it and submits all jobs that are not done"
    if shutil.which("squeue") is None:
        raise ConfigError(what, missing="squeue", repair="resume on a machine of the cluster", hint=hint)
    command = ["squeue", "--noheader", "--array", "--format=%i", f"--user={os.getuid()}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise StorageError(what, reason=f"squeue did not answer in {SECONDS} s", hint=hint) from None
    if done.returncode:
        reason = done.stderr.strip().partition("\n")[0] or f"squeue ended with {done.returncode}"
        raise StorageError(what, reason=reason, hint=hint)
    return frozenset(done.stdout.split())
