from runner.communication.management import (
    get_group_size as get_group_size,
    get_rank as get_rank,
    init as init,
    release as release,
)
