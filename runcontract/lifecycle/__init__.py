"""How a run may move. Works on any model that has the contract's columns."""
