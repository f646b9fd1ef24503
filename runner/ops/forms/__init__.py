"""How operators are lowered on the CPU whose values lie batch last: (C, H, W, N) in memory."""
