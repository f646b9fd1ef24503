from runner.experiment.ranks.agreement import (
    Agreement as Agreement,
    check_all_or_none as check_all_or_none,
    first_reads as first_reads,
)
from runner.experiment.ranks.group import joined as joined
