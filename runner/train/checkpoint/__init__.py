"""Floor 5: parameters on the disk, in runner's own format (`state`) and in that of the reference (`ckpt`)."""

from typing import TYPE_CHECKING

from runner.host.lazy import late_names

if TYPE_CHECKING:
    from runner.train.checkpoint.parameters import load_checkpoint, load_param_into_net, save_checkpoint
else:
    __getattr__, __dir__ = late_names(__name__, {"parameters": "load_checkpoint load_param_into_net save_checkpoint"})

__all__ = ["load_checkpoint", "load_param_into_net", "save_checkpoint"]
