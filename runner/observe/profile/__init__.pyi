from runner.observe.profile import keys as keys, single_op as single_op
from runner.observe.profile.settings import ProfilingSettings as ProfilingSettings
