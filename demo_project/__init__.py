"""A project that shows runcontract at work: one app is one consumer."""
