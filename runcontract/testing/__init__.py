"""For tests and demos: real servers from pip."""
