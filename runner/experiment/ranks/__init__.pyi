from runner.experiment.ranks.group import joined as joined
