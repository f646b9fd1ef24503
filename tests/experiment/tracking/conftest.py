"""Trackers get the time that they need, however busy the machine is."""

import pytest
from patience import PATIENCE

from runner.experiment.tracking import follower


@pytest.fixture(autouse=True)
def _patient_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "LAST_SECONDS", PATIENCE)
