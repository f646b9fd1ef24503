from runner.observe.dump import settings as settings
from runner.observe.dump.dumper import Dumper as Dumper, FirstFailure as FirstFailure
from runner.observe.dump.settings import DumpSettings as DumpSettings

VARIABLE: str
