"""Checks on everything that leaves the hospital: the door, the site's policy, the disclosure."""
