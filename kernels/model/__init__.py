"""What a program builds, how it predicts and how it is stored; imports nothing of `rounds`."""
