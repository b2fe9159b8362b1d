"""What the journal says of its runs, for people. Reads only."""
