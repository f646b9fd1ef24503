"""Operators over the windows of images: convolutions, pools, and images of another size."""
