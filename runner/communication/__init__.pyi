from runner.communication.management import (
    GlobalComm as GlobalComm,
    get_group_rank_from_world_rank as get_group_rank_from_world_rank,
    get_group_size as get_group_size,
    get_local_rank as get_local_rank,
    get_local_rank_size as get_local_rank_size,
    get_rank as get_rank,
    get_world_rank_from_group_rank as get_world_rank_from_group_rank,
    init as init,
    release as release,
)
