"""What a run is: states, constraints, policy, errors and retry arithmetic. No I/O."""
