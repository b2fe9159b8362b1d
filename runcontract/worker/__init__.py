"""`runworker`: one supervisor that keeps the pulse, and children that perform."""
