from runner.experiment.ranks.group import RankGroup as RankGroup, joined as joined, stop_all as stop_all
