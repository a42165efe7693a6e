"""The model that a program builds, its predictions and its storage; imports nothing of `rounds`."""
