"""What stages need of each other, and when a program is whole."""
