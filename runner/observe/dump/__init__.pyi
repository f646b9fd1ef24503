from runner.observe.dump import json_config as json_config
from runner.observe.dump.dumper import Dumper as Dumper
from runner.observe.dump.first_failure import FirstFailure as FirstFailure
from runner.observe.dump.settings import DumpSettings as DumpSettings

VARIABLE: str
