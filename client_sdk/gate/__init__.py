"""What may leave the hospital: the door, the site's policy, the disclosure."""
