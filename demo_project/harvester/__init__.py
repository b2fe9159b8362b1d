"""Harvests distributions' metadata over HTTP; what fails goes to a dead-letter table of its own."""
