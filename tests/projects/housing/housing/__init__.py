"""Prices of houses: a network and a metric of our own."""
