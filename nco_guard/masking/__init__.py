"""Masks: the definition (`bruteforce`), its fast form (`tables`), and rules joined lazily (`joint`)."""

from nco_guard.masking.joint import ENDED, VIOLATED, JointTables

__all__ = ["ENDED", "VIOLATED", "JointTables"]
