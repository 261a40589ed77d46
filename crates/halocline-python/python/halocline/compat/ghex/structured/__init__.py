"""Structured grids."""
