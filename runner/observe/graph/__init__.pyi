from runner.observe.graph.reader import read as read
