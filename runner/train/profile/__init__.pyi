from runner.train.profile.profiler import (
    Profiler as Profiler,
    both_modes as both_modes,
    find as find,
    profiler_from_context as profiler_from_context,
    profiler_from_settings as profiler_from_settings,
)
