from runner.observe.graph.folder import GraphFolder as GraphFolder, write_failed as write_failed
from runner.observe.graph.listing import read as read
