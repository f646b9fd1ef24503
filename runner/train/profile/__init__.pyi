from runner.train.profile.profiler import (
    TrainingProfiler as TrainingProfiler,
    find_operator as find_operator,
    measure_in_both_modes as measure_in_both_modes,
    profiler_from_context as profiler_from_context,
    profiler_from_settings as profiler_from_settings,
)
