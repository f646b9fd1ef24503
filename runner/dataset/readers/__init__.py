"""Readers of files: the user's own folder of images, arrays of numpy or table in CSV, and MNIST and CIFAR-10."""
