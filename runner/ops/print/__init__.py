"""Floor 1: where the strings and tensors of the Print operator go, and the reference's file format for them."""
