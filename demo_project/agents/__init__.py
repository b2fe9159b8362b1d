"""Answers questions over the graph, step by step; each run can be watched, stopped and repeated."""
