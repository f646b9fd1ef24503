"""Two threads that call `runner.run`: the second is refused, and the numbers of the first are those of a run alone."""

import asyncio
import os
from threading import Event, Thread

import pytest
from patience import PATIENCE

import runner
from runner.config.schema import RunConfig
from runner.errors import BusyError, ConfigError
from runner.experiment import run as experiment
from runner.host.process import only_run

WORDS = ("+experiment=lenet_seed", "dataset=synthetic", "dataset.num_samples=96", "callbacks=quiet", "epochs=2")


def in_thread(words):
    return asyncio.to_thread(runner.run, words)


def in_other_thread(words):
    """Without asyncio."""
    loop = asyncio.get_running_loop()
    found = loop.create_future()

    def call():
        try:
            made, give = runner.run(words), found.set_result
        except runner.RunnerError as error:
            made, give = error, found.set_exception
        loop.call_soon_threadsafe(give, made)

    Thread(target=call, daemon=True).start()
    return found


@pytest.mark.parametrize("start", [in_thread, in_other_thread])
def test_a_second_thread_is_refused(tmp_path, monkeypatch, start):
    monkeypatch.chdir(tmp_path)
    runner.run([*WORDS, "hydra.run.dir=alone"])
    inside, ended, usual = Event(), Event(), experiment.run

    def run(request):
        inside.set()
        assert ended.wait(PATIENCE)
        return usual(request)

    monkeypatch.setattr(experiment, "run", run)

    async def both():
        first = asyncio.ensure_future(start([*WORDS, "hydra.run.dir=first"]))
        try:
            assert await asyncio.to_thread(inside.wait, PATIENCE)
            monkeypatch.setattr(experiment, "run", usual)
            with pytest.raises(BusyError, match="another thread of this process executes a run"):
                await start([*WORDS, "seed=2", "hydra.run.dir=second"])
        finally:
            ended.set()
            await first

    asyncio.run(both())
    assert not (tmp_path / "second").exists()
    alone, first = ((tmp_path / name / "metrics.jsonl").read_text() for name in ("alone", "first"))
    assert alone == first != ""
    runner.run([*WORDS, "seed=2", "hydra.run.dir=second"])


def test_a_run_beside_a_recorded_one_is_refused(tmp_path):
    found: list[BaseException] = []

    def call():
        try:
            runner.run([*WORDS, f"hydra.run.dir={tmp_path / 'other'}"])
        except BusyError as error:
            found.append(error)

    def record():
        with runner.record(tmp_path / "mine", {}):
            thread = Thread(target=call)
            thread.start()
            thread.join()

    with pytest.raises(ConfigError, match="nothing was recorded"):
        record()
    assert len(found) == 1


@pytest.fixture
def elsewhere():
    """Another thread executes a run."""
    inside, ended = Event(), Event()

    def hold():
        with only_run():
            inside.set()
            ended.wait(PATIENCE)

    thread = Thread(target=hold)
    thread.start()
    assert inside.wait(PATIENCE)
    yield
    ended.set()
    thread.join()


def test_what_sets_seeds_is_refused(elsewhere):
    """Predictions and exports, too."""
    before = runner.get_seed()
    with pytest.raises(BusyError), experiment.run_environment(RunConfig(seed=7)):
        pass
    assert runner.get_seed() == before


def test_a_forked_process_has_runs_of_its_own(elsewhere):
    pid = os.fork()
    if not pid:
        try:
            with only_run(), only_run():
                os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
