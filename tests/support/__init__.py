"""What tests share: servers, processes, waiting, races."""
