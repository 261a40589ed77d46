"""Interfaces of other packages, on top of this one."""
