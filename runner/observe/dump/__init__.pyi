from runner.observe.dump import json_config as json_config, keys as keys
from runner.observe.dump.dumper import Dumper as Dumper
from runner.observe.dump.first_failure import FirstFailure as FirstFailure
from runner.observe.dump.json_config import Asked as Asked
from runner.observe.dump.settings import VARIABLE as VARIABLE, DumpSettings as DumpSettings, Kind as Kind
