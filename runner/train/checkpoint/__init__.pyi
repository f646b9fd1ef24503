from runner.train.checkpoint.parameters import (
    load_checkpoint as load_checkpoint,
    load_param_into_net as load_param_into_net,
    save_checkpoint as save_checkpoint,
)
