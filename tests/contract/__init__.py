"""What a run is, without a database: errors, masking, classification, retry arithmetic."""
