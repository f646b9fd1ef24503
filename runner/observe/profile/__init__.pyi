from runner.observe.profile import single_op as single_op
from runner.observe.profile.settings import (
    KEYS as KEYS,
    UNNAMED as UNNAMED,
    ProfileSettings as ProfileSettings,
    merged as merged,
    options as options,
)
