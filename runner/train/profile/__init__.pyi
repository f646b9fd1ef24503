from runner.train.profile.profiler import (
    Profiler as Profiler,
    both_modes as both_modes,
    find as find,
    of_context as of_context,
    telling as telling,
)
