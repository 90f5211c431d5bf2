"""The CPU executor: in-flight batching over OpenVINO's paged attention."""
