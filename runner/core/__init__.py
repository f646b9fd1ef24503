"""Floor 1: values, operators, the record that both modes keep, and the one door through which operators pass."""
