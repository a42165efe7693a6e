"""What a private program can be expected to achieve, in numbers and in words."""
