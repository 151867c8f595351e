"""Masks: the definition (`bruteforce`), its fast form (`tables`), and rules joined lazily (`joint`)."""

from nco_guard.masking.joint import ENDED, HORIZON, VIOLATED, JointTables

__all__ = ["ENDED", "HORIZON", "VIOLATED", "JointTables"]
