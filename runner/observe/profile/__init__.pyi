from runner.observe.profile import single_op as single_op
from runner.observe.profile.settings import ProfileSettings as ProfileSettings, options as options
