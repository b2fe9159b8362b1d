"""A consumer made for the tests: run models whose jobs do what a test asks for."""
