"""Floor 5: parameters on the disk, in runner's own format (`state`) and in that of the reference (`ckpt`)."""

from runner.checkpoint.parameters import load_checkpoint, load_param_into_net, save_checkpoint

__all__ = ["load_checkpoint", "load_param_into_net", "save_checkpoint"]
